"""What an optimizer does around another one's step is told apart: gradients made ready before, the rest after."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Steps
from tests.support.one_tap import Ticking, batches, model

MS = 1_000_000


class Slow(torch.optim.SGD):
    """Takes 2 ms."""

    clock: Ticking

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.clock.ns += 2 * MS
        return super().step(closure)


class Private(torch.optim.Optimizer):
    """As Opacus makes it, without Optimizer's `__init__`: 5 ms, then the wrapped one every second time, and 3 ms."""

    def __init__(self, optimizer: Slow) -> None:
        self.original, self.calls, self.seen = optimizer, 0, 0
        self.param_groups = optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.original.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        if closure is not None:
            self.seen += 1
            closure()
        self.calls += 1
        self.original.clock.ns += 5 * MS
        if self.calls % 2:
            return None
        loss = self.original.step()
        self.original.clock.ns += 3 * MS
        return loss


def trained(closure: bool = False) -> tuple[Steps, Private]:
    """Forty micro-batches, twenty steps."""
    clock = Ticking()
    recorder, net = Recorder(clock=clock), model()
    Slow.clock = clock
    optimizer = Private(Slow(net.parameters(), lr=0.1))
    with listening(recorder, {"net": net}, accelerated=False):
        for x, _ in batches(40 * 8):

            def backward(x: torch.Tensor = x) -> None:
                net(x).sum().backward()

            optimizer.zero_grad()
            if closure:
                optimizer.step(backward)
            else:
                backward()
                optimizer.step()
    recording = recorder.close()
    assert not recording.notes
    return recording.steps, optimizer


@pytest.mark.parametrize("hooked", [False, True])
def test_gradients_are_made_ready_in_the_backward(hooked: bool) -> None:
    """Also where SGD's own step, which Slow's calls, has its hooks from another optimizer of the process."""
    if hooked:
        torch.optim.SGD(model().parameters(), lr=0.1)
    before = vars(Private)["step"]
    steps, _ = trained()
    assert vars(Private)["step"] is before
    assert steps.count.sum() == 20
    later = steps.rows(2)
    assert later.backward_s / later.count == pytest.approx(0.010, abs=0.0003)
    assert later.optimizer_s / later.count == pytest.approx(0.002, abs=0.0003)
    assert later.other_s / later.count == pytest.approx(0.003, abs=0.0003)


def test_a_closure_is_the_loops_own() -> None:
    steps, optimizer = trained(closure=True)
    assert optimizer.seen == 40
    assert steps.count.sum() == 20
    assert steps.other_s.sum() == pytest.approx(0.26, abs=0.02)
