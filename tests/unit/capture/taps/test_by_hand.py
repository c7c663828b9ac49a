"""Loops that change their parameters themselves: an event tells which they are, however late the log is folded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording
from tests.support.one_tap import Ticking, model, sgd

LATE = 10**9


def descend(net: nn.Module, steps: int) -> None:
    for _ in range(steps):
        net.zero_grad()
        net(torch.rand(8, 4)).sum().backward()
        for one in net.parameters():
            one.data.add_(torch.as_tensor(one.grad), alpha=-0.1)


def recorded(net: nn.Module, steps: int, then_made: bool, due: int | None) -> Recording:
    """The run of a loop by hand, after which an optimizer may be made; folded as usual, or all at once."""
    recorder = Recorder(clock=Ticking())
    if due is not None:
        recorder.log.due = recorder.log.due_ns = due
    with listening(recorder, {"net": net}, accelerated=False):
        descend(net, steps)
        made = sgd(net) if then_made else None
    del made
    return recorder.close()


@pytest.mark.parametrize("due", [None, LATE])
def test_steps_are_told_though_an_optimizer_is_made_before_they_are_folded(due: int | None) -> None:
    recording = recorded(model(), 6, True, due)
    assert recording.steps.count.sum() == 6


@pytest.mark.parametrize("due", [None, LATE])
def test_the_model_of_such_a_loop_is_described(due: int | None) -> None:
    recording = recorded(model(), 6, False, due)
    assert recording.setup.parameters == 4 * 3 + 3 + 3 + 1


def test_gradients_of_what_an_optimizer_owns_end_no_step() -> None:
    net = model()
    recorder = Recorder(clock=Ticking())
    with listening(recorder, {"net": net, "known": sgd(net)}, accelerated=False):
        descend(net, 6)
    assert len(recorder.close().steps) == 0
