"""A compiled step keeps its graphs while it is recorded, and what is compiled is heard."""

from __future__ import annotations

import logging
import sys

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import compiler, listening
from gpu_doctor.capture.taps.forward import SEAM
from tests.support.one_tap import batches, model

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


def test_a_compiled_step_keeps_its_graphs_and_its_steps_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    import torch._dynamo

    alone, under_us = graphs(), []
    caplog.set_level(logging.WARNING)
    recording = gpu_doctor.case(lambda: under_us.append(graphs()), {}).run()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert under_us == [alone]
    assert recording.steps.count.sum() == STEPS
    assert not [one for one in caplog.messages if "gpu_doctor" in one]


def test_what_is_left_out_is_there() -> None:
    for name in compiler.LEFT_OUT:
        assert f"gpu_doctor.capture.{name}" in sys.modules


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
