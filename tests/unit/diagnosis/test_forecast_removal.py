"""What is left of a step when work that trains nothing goes."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.removed_work import COLD_MOST, cold_share, without
from tests.support.recordings import Loop, on_gpu


def test_nothing_goes_nothing_is_gained() -> None:
    found = without(Loop().vitals(), 0.0)
    assert found.speedup == found.low == 1.0


def test_amdahl_and_the_warming_of_the_rest() -> None:
    loop = Loop(other=10.0).vitals()  # half of 20 ms
    found = without(loop, 0.5)
    assert found.low < 2.0 < found.speedup < found.high
    assert found.speedup == pytest.approx(20 / (10 - 0.47), rel=0.01), "0.47 ms of coldness after 10 ms of other work"


def test_after_little_work_little_is_cold_and_small_models_are_not_all_cold() -> None:
    short = Loop(other=0.3).vitals()
    assert cold_share(short, 0.03) * 10.3 < 0.08
    tiny = Loop(forward=0.2, backward=0.2, optimizer=0.1, other=12.0).vitals()
    share = 12.0 / 12.5
    assert cold_share(tiny, share) == pytest.approx(COLD_MOST * (1 - share))


def test_an_interruption_every_twenty_steps_leaves_the_others_warm() -> None:
    loop = Loop(other=2.0).vitals()
    each, seldom = cold_share(loop, 1 / 6), cold_share(loop, 1 / 6, calls_per_step=0.05)
    assert seldom < each / 3


def test_weights_come_back_from_memory() -> None:
    small, large = (Loop(other=10.0, setup={"parameter_bytes": size}).vitals() for size in (1000, 10_000_000))
    assert cold_share(large, 0.5) > cold_share(small, 0.5)


def test_on_a_gpu_the_hosts_coldness_is_not_claimed() -> None:
    found = without(on_gpu(other=5.0, gpu_gap=5.0).vitals(), 1 / 3)
    assert found.speedup == pytest.approx(1.5)


def test_more_may_go_than_was_told_apart() -> None:
    loop = Loop(other=10.0).vitals()
    assert without(loop, 0.3, most=0.5).high > without(loop, 0.3).high
    assert without(loop, 0.3, most=0.5).speedup == without(loop, 0.3).speedup
