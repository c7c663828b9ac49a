"""Forwards with a shape not seen before are counted, and what they took beyond a usual step is timed."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest
import torch
from torch import nn

from tests.support.one_tap import run, sgd

SLOW_S: Final = 0.02
"""Many times what a step of this model takes on a busy machine."""
WIDTH: Final = 0.5
"""Half of what separates the seconds slept from none."""


@pytest.mark.alone
def test_changing_shapes_are_counted_and_their_steps_timed() -> None:
    class Slow(nn.Module):
        """Takes 20 ms for a shape that it has not seen before, as a tuner would."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.known: set[int] = set()

        def forward(self, x: torch.Tensor) -> Any:
            if x.shape[1] not in self.known:
                time.sleep(SLOW_S)
                self.known.add(x.shape[1])
            return self.layer(x)

    def loop(net: nn.Module) -> None:
        optimizer = sgd(net)
        for step in range(120):
            length = 64 + step // 4 if step % 4 == 3 else 64
            optimizer.zero_grad()
            net(torch.rand(2, length, 4)).sum().backward()
            optimizer.step()

    inputs = run(loop, net=Slow()).inputs
    assert inputs is not None
    assert inputs.shape == (2, 64, 4)
    assert inputs.shapes == 30 and inputs.new_shape_steps == 29
    assert inputs.new_shape_s == pytest.approx(27 * SLOW_S, rel=WIDTH)
