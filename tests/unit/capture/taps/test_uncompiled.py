"""A whole step that the user compiles stays as it is without us, and is heard."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
import torch
from torch import nn

import gpu_doctor
from gpu_doctor.patching import Patches
from gpu_doctor.taps import uncompiled
from tests.support.one_tap import standing

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


@pytest.mark.filterwarnings("ignore")
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


def test_the_compiler_is_told_when_it_first_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Rules:
        add = told.append

    class Compiler:
        trace_rules = Rules

    monkeypatch.setattr(uncompiled, "_known", [])
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(torch, "_dynamo", Compiler, raising=False)

    def compile(model: Any) -> Any:
        monkeypatch.setitem(sys.modules, "torch._dynamo", Compiler)
        return model

    monkeypatch.setattr(torch, "compile", compile)
    with Patches() as patches:
        uncompiled.leave_us_out(patches)
        assert not told and torch.compile is not compile
        assert torch.compile(abs) is abs
        assert told == [f"gpu_doctor.{name}" for name in uncompiled.LEFT_OUT]
        torch.compile(abs)
        assert len(told) == len(uncompiled.LEFT_OUT)
    assert standing((torch, "compile")) == [compile]
    with Patches() as patches:
        uncompiled.leave_us_out(patches)
        assert torch.compile is compile


def test_what_is_left_out_is_there() -> None:
    for name in uncompiled.LEFT_OUT:
        assert f"gpu_doctor.{name}" in sys.modules
