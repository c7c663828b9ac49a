"""The steps that are marked are chosen by chance: what happens every so many steps happens in them as often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.simulated_device import Noted, SimulatedDevice
from tests.support.simulated_loops import Loop


@dataclass
class Pausing(Loop):
    """The host does something else every so many steps."""

    pause_every: int = 20
    pause: float = 500.0

    def _after(self, device: SimulatedDevice, loop: Noted, step: int) -> None:
        super()._after(device, loop, step)
        if step % self.pause_every == self.pause_every - 1:
            device.host(self.pause)


@pytest.mark.parametrize("every", [20, 50])
def test_a_pause_every_so_many_steps_is_in_the_marked_steps_as_often(every: int) -> None:
    loop = Pausing(wait=0.5, kernel=0.2, steps=6000, mark_cost=0.01, pause_every=every)
    device, recording = loop.play()
    later = recording.steps.rows(64)
    read = later.where(later.device_steps > 0)
    assert 100 < len(read) < 0.8 * len(later)
    gap_s, whole_s = np.sum(read.gpu_gap_s), np.sum(read.gpu_gap_s + read.gpu_s)
    assert gap_s / whole_s == pytest.approx(1 - device.busy / device.now, abs=0.06)
