"""Losses that lie on a GPU, which is simulated, are kept as they were in their steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gpu_doctor.capture.taps import listening
from tests.support.one_tap import model
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import Graph

STEPS = 5


@pytest.fixture
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda() as found:
        yield found


def trained(cuda: SimulatedCuda, scaled: bool = False) -> tuple[list[float], list[float]]:
    """The losses of a loop, and those recorded; each lies where the next step's result is written to."""
    torch.manual_seed(0)
    net, recorder, own = model().to("cuda"), cuda.device.recorder(), list[float]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)
    with listening(recorder, {"net": net}, accelerated=True):
        before: Any = None
        for _ in range(STEPS):
            loss = net(torch.rand(2, 4, device="cuda")).square().mean()
            if before is not None:
                before.detach().fill_(-1.0)
            before = loss
            own.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return own, recorder.close().losses.value.tolist()


@pytest.mark.parametrize("scaled", [False, True])
def test_a_loss_whose_memory_is_used_again_is_that_of_its_step(cuda: SimulatedCuda, scaled: bool) -> None:
    own, told = trained(cuda, scaled)
    assert told == pytest.approx(own)


def test_no_loss_is_kept_while_a_graph_is_captured(cuda: SimulatedCuda) -> None:
    cuda.device.graph = Graph()
    assert trained(cuda)[1] == []
