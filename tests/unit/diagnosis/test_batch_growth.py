"""How the stages of a step grow with the batch, as far as one size can tell. GPU: recordings, none run."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.batch_size import growth
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.stages import stages
from tests.support.recordings import Loop, on_gpu

LAUNCHES = on_gpu(caught_up=1.0, gpu_util=20.0, gpu_gap=0.05)


@pytest.mark.parametrize("size", [33, 64, 256])
@pytest.mark.parametrize(
    "loop",
    [
        LAUNCHES,
        LAUNCHES.but(loader={}, wait=5.0, gpu_gap=5.05),
        LAUNCHES.but(loader={}, wait=5.0),  # of 15 ms of launches the loop's own are 10, fetched in while the GPU works
    ],
)
def test_a_larger_batch_takes_no_less_of_the_loops_own_work_and_no_more_than_in_proportion(
    loop: Loop, size: int
) -> None:
    vitals = loop.vitals()
    now = stages(vitals)
    assert now is not None
    found = growth(vitals, now, size)
    assert found is not None
    for most, usual, least in (found.own, found.device):
        rounding = 1.0 + 1e-9
        assert size / 32 * rounding >= most >= usual / rounding >= least / rounding**2
        assert least == 1.0


@pytest.mark.parametrize("size", [33, 64, 256])
def test_where_launches_are_all_of_the_loops_own_work_it_takes_as_long_for_any_batch(size: int) -> None:
    vitals = LAUNCHES.vitals()
    now = stages(vitals)
    assert now is not None
    found = growth(vitals, now, size)
    assert found is not None and found.own == pytest.approx((1.0, 1.0, 1.0))


def test_a_forecast_from_one_size_says_what_share_it_knows() -> None:
    found = forecast(Loop(wait=90.0).vitals(), {"batch_size": 40})
    assert found is not None and "90 %" in found.why
