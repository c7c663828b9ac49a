"""The marks on the device stay within their budget, and tell the same shares as when every step is marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.capture.gpu.windows import MARKS_SHARE, WINDOW
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.simulated_loops import Loop


@pytest.mark.parametrize("kernel", [0.02, 0.1, 0.5, 2.0])
def test_marks_stay_within_their_budget_and_say_the_same(kernel: float) -> None:
    loop = Loop(
        wait=3 * kernel,
        kernels=10,
        kernel=kernel,
        launch_cost=0.002,
        update=kernel,
        steps=6000 if kernel > 0.02 else 20_000,
    )
    _, every = loop.play()
    device, some = replace(loop, mark_cost=0.005).play()
    marked = some.steps.device_steps.sum()
    later = some.steps.rows(1000)
    cost_s = 1e-3 * 0.005 * len(device.marks)
    assert cost_s - 64 * 8 * 5e-6 < 1.2 * MARKS_SHARE * float(some.steps.wall_s.sum())
    assert 64 <= marked <= 0.1 * loop.steps if kernel < 0.5 else marked > 0.1 * loop.steps
    assert later.device_steps.sum() > 5
    one, other = measure(every), measure(some)
    assert other.gpu_gap_share == pytest.approx(one.gpu_gap_share, abs=0.01)
    assert other.exposed_wait_share == pytest.approx(one.exposed_wait_share, abs=0.01)
    assert other.gpu_forward_share == pytest.approx(one.gpu_forward_share, abs=0.01)
    assert device.unfreed <= 4
    assert len({id(mark) for mark in device.marks}) < 8 * (marked + marked / WINDOW + 2)
