"""Another batch size from one that was seen, where launches bind the step. GPU: recordings, none run."""

from __future__ import annotations

import pytest
from recordings import Loop, on_gpu

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.forecast import Forecast, forecast

LAUNCHES = on_gpu(queue_empty=1.0, gpu_util=20.0, gpu_gap=0.05)
"""A step of 10 ms in which kernels run for 2 ms."""


def told(loop: Loop, size: int) -> Forecast:
    found = forecast(loop.vitals(), {"batch_size": size})
    assert found is not None
    assert found.low <= found.speedup <= found.high
    return found


def test_launches_take_as_long_for_a_larger_batch() -> None:
    assert told(LAUNCHES, 128).speedup == pytest.approx(4.0, rel=0.01)
    assert "10 ms of launches" in told(LAUNCHES, 128).why


def test_until_the_kernels_fill_the_step() -> None:
    found = told(LAUNCHES, 32 * 10)  # 10 x 2 ms of kernels: 5x, or 10x if they do not fill the GPU
    assert found.speedup == pytest.approx(50**0.5, rel=0.01)
    assert found.low < 5.0 and found.high > 10.0


def test_copies_grow_with_the_batch() -> None:
    copying = LAUNCHES.but(transfer=2.0, gpu_gap=2.05, pageable=2.0)
    assert told(copying, 64).speedup < told(LAUNCHES, 64).speedup


def test_a_batch_that_may_not_fit_says_so() -> None:
    assert "fits" in told(LAUNCHES, 128).why
    assert "fits" not in told(LAUNCHES.but(peak_share=0.05), 128).why


def test_where_something_else_binds_nothing_is_known() -> None:
    for loop in (
        on_gpu(),
        LAUNCHES.but(queue_empty=0.2),
        LAUNCHES.but(gpu_util=90.0),
        LAUNCHES.but(sync=2.0),
    ):
        assert forecast(loop.vitals(), {"batch_size": 128}) is None
    assert forecast(LAUNCHES.vitals(), {"batch_size": 8}) is None, "a smaller one: kernels may bind or not"


def test_the_rule_says_it() -> None:
    found = next(one for one in diagnose(LAUNCHES.recording()).findings if one.rule == "launch-bound")
    cure = found.prescriptions[0]
    assert cure.predicted_low and cure.predicted_speedup and cure.predicted_high
    assert cure.predicted_low < cure.predicted_speedup == pytest.approx(4.0, rel=0.01)
