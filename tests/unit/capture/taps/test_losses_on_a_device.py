"""Losses that lie on a device are kept as they were in their steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from tests.support.one_tap import model

STEPS = 5


class OnDevice(torch.Tensor):
    """A tensor that says that it is not in main memory."""

    is_cpu = False


def trained(scaled: bool = False) -> tuple[list[float], list[float]]:
    """The losses of a loop, and those recorded; each lies where the next step's result is written to."""
    torch.manual_seed(0)
    net, recorder, own = model(), Recorder(), list[float]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    with listening(recorder, {"net": net}, accelerated=False):
        before: Any = None
        for _ in range(STEPS):
            loss = net(torch.rand(2, 4)).square().mean().as_subclass(OnDevice)
            if before is not None:
                before.detach().fill_(-1.0)
            before = loss
            own.append(float(loss.detach().as_subclass(torch.Tensor)))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return own, recorder.close().losses.value.tolist()


@pytest.mark.parametrize("scaled", [False, True])
def test_a_loss_whose_memory_is_used_again_is_that_of_its_step(scaled: bool) -> None:
    own, told = trained(scaled)
    assert told == pytest.approx(own)


def test_no_loss_is_kept_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnDevice, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert trained()[1] == []
