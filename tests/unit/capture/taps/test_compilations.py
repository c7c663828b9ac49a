"""What torch.compile compiles while a run goes on is noted: its seconds, torch's reason, and where it gives up."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from torch import nn

from gpu_doctor.capture import patching, taps
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.compilations import CompileRecords, tap
from gpu_doctor.recording import Recording
from tests.support.one_tap import batches, on

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


def trained(net: nn.Module, epochs: int, change: bool = True, recorder: Recorder | None = None) -> Recording:
    """A loop around a compiled model; two steps an epoch."""
    recorder = recorder or Recorder()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with taps.listening(recorder, {"net": net}):
        for epoch in range(epochs):
            net.epoch = epoch if change else 0  # type: ignore[assignment]
            for x, y in batches(16):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(x).squeeze(1), y).backward()
                optimizer.step()
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
    assert found[-1].reason == "self.epoch == 1"


def test_a_sound_loop_compiles_once() -> None:
    net = Scheduled()
    net.compile(backend="eager")
    found = trained(net, epochs=3, change=False).setup.compilations
    assert found is not None and [one.reason for one in found] == [""]


def test_nothing_compiled_is_nothing_and_not_unknown() -> None:
    assert trained(Scheduled(), epochs=2).setup.compilations == ()


def test_versions_before_and_after_a_reset_in_the_cell_are_told() -> None:
    recorder = Recorder()
    with taps.listening(recorder, {}):
        torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
        torch._dynamo.reset()
        torch.compile(lambda x: x + 2, backend="eager")(torch.zeros(2))
    found = recorder.close().setup.compilations
    assert found is not None and len(found) == 2 and all(one.wall_s > 0 for one in found)


def test_a_backward_that_is_compiled_later_is_part_of_its_version() -> None:
    net = Scheduled()
    net.compile(backend="aot_eager")
    (one,) = trained(net, epochs=2, change=False).setup.compilations or ()
    spent_us = [record.duration_us or 0 for record in torch._dynamo.utils.get_compilation_metrics()[-2:]]
    assert one.wall_s == pytest.approx(sum(spent_us) * 1e-6)


def test_more_compilations_than_torch_keeps_records_of() -> None:
    torch._dynamo.utils.set_compilation_metrics_limit(2)
    try:
        net = Scheduled()
        net.compile(backend="eager")
        recorder = Recorder(max_steps=1000)  # every step is folded soon
        recorder.plan.fold_each_step()
        found = trained(net, epochs=6, recorder=recorder).setup.compilations
    finally:
        torch._dynamo.utils.set_compilation_metrics_limit(64)
    assert found is not None and [one.reason for one in found] == ["", *(f"self.epoch == {n}" for n in range(5))]


def test_nothing_of_the_compiler_is_patched_for_it() -> None:
    with on(tap) as scope:
        torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2))
        assert patching.active() == () and not HANDLER.start_callbacks
        assert len(scope.recorder.setup().compilations or ()) == 1


@pytest.mark.parametrize("missing", ["get_compilation_metrics", "start_time_us", "recompile_reason"])
def test_where_torch_keeps_no_such_records_nothing_is_said(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"start_time_us": 1 << 62, "compile_id": "0/0", "duration_us": 5, "fail_reason": None, "co_name": "f"}
    record |= {"recompile_reason": None, "co_filename": "f.py", "co_firstlineno": 3}
    strange = SimpleNamespace(**{name: value for name, value in record.items() if name != missing})
    names = {"get_compilation_metrics": lambda: [strange]}
    module = SimpleNamespace(**{name: value for name, value in names.items() if name != missing})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)  # type: ignore[arg-type]
    recorder = Recorder()
    assert CompileRecords(recorder).found() is None and recorder.notes == []


def test_anomaly_detection_that_compiling_turns_on_is_no_debugging_aid() -> None:
    net = Scheduled()
    net.compile(backend="aot_eager")
    flags = trained(net, epochs=2).setup.flags
    assert (flags["anomaly_mode"], flags["anomaly_share"]) == (False, 0.0)
