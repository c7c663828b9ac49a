"""What else sets a GPU's pace than its kernels, told from loops written down."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.rules.gpu_pace import at_most, kernels_set_it
from tests.support.recordings import Loop, on_gpu

BUSY = on_gpu()
STARVED = on_gpu(wait=8.0, gpu_gap=8.0, gpu_work=10.0, workers=4)


@pytest.mark.parametrize("loop", [Loop(), BUSY, on_gpu(sync=8.0, gpu_gap=4.0, gpu_work=10.0)])
def test_faster_kernels_help(loop: Loop) -> None:
    assert kernels_set_it(loop.vitals())


@pytest.mark.parametrize("loop", [BUSY.but(caught_up=1.0), on_gpu(other=4.0, gpu_gap=4.0, gpu_work=10.0)])
def test_they_do_not_where_the_gpu_is_through_first(loop: Loop) -> None:
    assert not kernels_set_it(loop.vitals())


def test_copies_in_the_gap_are_the_gpus_own_time() -> None:
    assert kernels_set_it(on_gpu(transfer=4.0, gpu_gap=4.0, gpu_work=10.0).vitals())


@pytest.mark.parametrize(("fetch", "gain"), [(4.0, 0.3), (32.0, 0.2), (39.6, 0.01)])
def test_nothing_is_gained_beyond_what_the_workers_deliver(fetch: float, gain: float) -> None:
    vitals = on_gpu(workers=4, fetch=fetch).vitals()  # of a step of 10 ms
    assert at_most(vitals, 0.3) == pytest.approx(gain, abs=0.001)


def test_a_loop_that_waits_for_busy_workers_gains_nothing() -> None:
    assert at_most(STARVED.but(fetch=40.0).vitals(), 0.3) == 0.0  # 10 of 18 ms, by what the fetch alone takes
    assert at_most(STARVED.but(fetch=8.0).vitals(), 0.3) == 0.3  # they wait for something else, such as an epoch's edge
    assert at_most(STARVED.but(workers=0, fetch=40.0).vitals(), 0.3) == 0.3
