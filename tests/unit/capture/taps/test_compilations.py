"""What torch.compile compiles while a run goes on is noted: its seconds, torch's reason, and where it gives up."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.compilations import CompileBook, hear
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording import Recording
from tests.support.one_tap import batches

HANDLER = torch._dynamo.callback.callback_handler


class Scheduled(nn.Module):
    """Holds a Python number that its forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.epoch = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (1 + self.epoch)


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Compiling for the first time in a process loads much of torch, which is no test's own time."""
    net = Scheduled()
    net.compile(backend="aot_eager")
    net(torch.zeros(2, 4)).sum().backward()


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    monkeypatch.setattr(logging.getLogger("torch._dynamo.convert_frame"), "disabled", True)
    yield
    torch._dynamo.reset()
    assert not HANDLER.start_callbacks and not HANDLER.end_callbacks and patching.active() == ()


def trained(net: nn.Module, epochs: int, change: bool = True) -> Recording:
    """A loop around a compiled model; two steps an epoch."""
    recorder = Recorder()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with taps.listening(recorder, {"net": net}):
        for epoch in range(epochs):
            net.epoch = epoch if change else 0  # type: ignore[assignment]
            for x, y in batches(16):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(x).squeeze(1), y).backward()
                optimizer.step()
    assert not HANDLER.start_callbacks and not HANDLER.end_callbacks
    return recorder.close()


def test_versions_come_with_their_seconds_and_reasons() -> None:
    net = Scheduled()
    net.compile(backend="eager")
    recording = trained(net, epochs=4)
    found = recording.setup.compilations
    assert found is not None and [one.function for one in found] == ["forward"] * 4
    assert [one.reason for one in found] == ["", *(f"self.epoch == {n}" for n in range(3))]
    assert all(one.file == __file__ and "def forward" in lines()[one.line - 1] for one in found)
    assert [one.guard_text for one in found[1:]] == ["return self.layer(x) * (1 + self.epoch)"] * 3
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    steps = recording.steps
    each = {float(one.at_s): one.wall_s for one in found}
    for at_s, wall_s in each.items():
        row = int((steps.start_s <= at_s).sum()) - 1
        assert 0.0 < wall_s <= steps.wall_s[row]


def lines() -> list[str]:
    return Path(__file__).read_text().splitlines()


def test_where_torch_gives_up_is_noted() -> None:
    net = Scheduled()
    net.compile(backend="eager")
    with torch._dynamo.config.patch(recompile_limit=2):
        found = trained(net, epochs=4).setup.compilations
    assert found is not None
    assert [(one.given_up, one.function) for one in found] == [(False, "forward")] * 2 + [(True, "forward")]
    assert found[-1].wall_s == 0.0 and found[-1].reason == "self.epoch == 1"


def test_a_sound_loop_compiles_once() -> None:
    net = Scheduled()
    net.compile(backend="eager")
    found = trained(net, epochs=3, change=False).setup.compilations
    assert found is not None and [one.reason for one in found] == [""]


def test_nothing_compiled_is_nothing_and_not_unknown() -> None:
    assert trained(Scheduled(), epochs=2).setup.compilations == ()


def test_a_reset_in_the_cell_does_not_end_the_listening() -> None:
    recorder = Recorder()
    with taps.listening(recorder, {}):
        torch._dynamo.reset()
        assert HANDLER.start_callbacks == []
        torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
        assert len(HANDLER.start_callbacks) == 2
        torch.compile(lambda x: x + 2, backend="eager")
        assert len(HANDLER.start_callbacks) == 2
    found = recorder.close().setup.compilations
    assert found is not None and len(found) == 1


def test_what_another_thread_compiles_is_not_the_loops() -> None:
    recorder = Recorder()
    with taps.listening(recorder, {}):
        call = torch.compile(lambda x: x + 1, backend="eager")
        recorder.log.thread += 1
        call(torch.zeros(2))
    assert recorder.close().setup.compilations == ()


@pytest.mark.parametrize("missing", ["callback_handler", "get_compilation_metrics", "CallbackArgs"])
def test_without_a_private_name_nothing_is_said(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch._dynamo", "torch._dynamo.utils", "torch._dynamo.callback"):
        names = {name: one for name, one in vars(sys.modules[module]).items() if name != missing}
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**names))  # type: ignore[arg-type]
    recorder = Recorder()
    with patching.Patches() as patches:
        book = CompileBook(recorder)
        hear(TapScope(recorder, patches), book)
        assert book.found() is None
    assert recorder.notes == []


def test_of_records_of_another_kind_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = [SimpleNamespace(start_time_us=1 << 62, compile_id="0/0")]
    recorder = Recorder()
    with taps.listening(recorder, {}):
        monkeypatch.setattr(torch._dynamo.utils, "get_compilation_metrics", lambda: strange)
        given = torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
    assert torch.equal(given, torch.ones(2))
    recording = recorder.close()
    assert recording.setup.compilations is None and recording.notes == ()


def test_what_fails_in_our_callback_ends_our_listening_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, asked: Any) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(CompileBook, "ends", broken)
    recorder = Recorder()
    with taps.listening(recorder, {}):
        given = torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
    assert torch.equal(given, torch.ones(2))
    assert any("ValueError('ours')" in one for one in recorder.close().notes)


def test_anomaly_detection_that_compiling_turns_on_is_no_debugging_aid() -> None:
    net = Scheduled()
    net.compile(backend="aot_eager")
    flags = trained(net, epochs=2).setup.flags
    assert (flags["anomaly_mode"], flags["anomaly_share"]) == (False, 0.0)
