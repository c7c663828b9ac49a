"""A compiled step keeps its graphs while it is recorded, and what is compiled is heard."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import compiler, listening
from gpu_doctor.capture.taps.forward import SEAM
from tests.support.one_tap import batches, model
from tests.support.simulated_device import Noted, SimulatedDevice

STEPS = 14


def graphs() -> int:
    """Graphs that torch makes of a step with its backward and its optimizer."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1))

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = net(x).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(STEPS):
        step(torch.ones(2, 4))
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.fixture
def counters() -> Iterator[Any]:
    """What torch counts of its graphs, from nothing."""
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def steps_of(device: SimulatedDevice) -> list[list[float]]:
    """A whole step is compiled, copies and all, and the device computes after the host."""
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1))

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = net(torch.Tensor.to(x, torch.float32).to("cpu")).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for number in range(STEPS):
        step(torch.full((2, 4), float(number), dtype=torch.float64))
        device.launch(1.0)
    return [p.tolist() for p in net.parameters()]


def test_a_compiled_step_keeps_its_graphs_while_it_is_marked_on_a_device(
    counters: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def counted() -> tuple[int, int, int]:
        graphs = counters["stats"]["unique_graphs"], len(counters["recompiles"]), sum(counters["graph_break"].values())
        torch._dynamo.reset()
        counters.clear()
        return graphs

    device, recorder = SimulatedDevice(), Recorder()
    alone = steps_of(device)
    graphs, recompiles, breaks = counted()
    caplog.set_level(logging.WARNING)
    Noted(recorder, device)
    with listening(recorder, {}, accelerated=True):
        assert steps_of(device) == alone
    under_us = counted()
    assert recorder.close().steps.count.sum() == STEPS and len(device.marks) > 2 * STEPS
    assert under_us[:2] == (graphs, recompiles) and under_us[2] <= breaks
    assert not [one for one in caplog.messages if "gpu_doctor" in one]


def test_all_of_ours_is_left_out_but_what_a_graph_goes_through() -> None:
    found = compiler.skipped_names()
    ours = [name for name in sys.modules if name.startswith("gpu_doctor.capture.")]
    through = {f"gpu_doctor.{name}" for name in compiler.TRACED}
    held = {name for name in ours if not any(name == one or name.startswith(f"{one}.") for one in found)}
    assert held == {"gpu_doctor.capture.taps", *through} - {"gpu_doctor.trials"}


def test_a_model_that_the_loop_compiles_itself_goes_on_being_heard_and_stays_compiled() -> None:
    recorder, net = Recorder(), model()
    with listening(recorder, {"net": net}, accelerated=False):
        net.compile(backend="eager")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, _ in batches(40):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    recording = recorder.close()
    assert (recording.steps.forward_s > 0).all() and not recording.notes
    assert vars(net)[SEAM].__module__.startswith("torch")


def test_the_compiler_looks_once_through_the_folders_that_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    rules = torch._dynamo.trace_rules
    made: list[int] = []
    original = rules._recompile_re

    def counted() -> None:
        made.append(len(rules.SKIP_DIRS))
        original()

    monkeypatch.setattr(rules, "SKIP_DIRS", [*rules.SKIP_DIRS])
    monkeypatch.setattr(rules, "_recompile_re", counted)
    monkeypatch.setattr(compiler, "_skipped", [])
    before = len(rules.SKIP_DIRS)
    with listening(Recorder(), {}, accelerated=False):
        pass
    assert made == [before + len(compiler.skipped_names())]
    assert rules.check_file(compiler.__file__).skipped and not rules.check_file(sys.modules[__name__].__file__).skipped
