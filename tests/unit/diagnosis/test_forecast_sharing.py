"""Workers and a loop's threads on the same cores: what is left to each, and what a step takes then."""

from __future__ import annotations

import dataclasses

import pytest
from gpu_doctor.diagnosis.forecast.sharing import (
    APART,
    MIDDLE,
    TOGETHER,
    Sharing,
    Work,
    fetch_bound_s,
    loop_bound_s,
)

from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.vitals.fetching import SPIN_S
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.recordings import Loop, on_gpu

ENDS = (TOGETHER, MIDDLE, APART)


def work(busy: float, fetch: float, threads: float = 1.0, workers: float = 2.0, waiting: float = 0.0) -> Work:
    """A step that needs so many seconds."""
    return Work(busy=busy, idle=0.0, threads=threads, fetch=fetch, waiting=waiting, workers=workers)


def step_s(one: Work, cores: float = 2.0, sharing: Sharing = MIDDLE, others: float = 0.0) -> float:
    """What such a step takes."""
    return max(loop_bound_s(one, cores, sharing, others), fetch_bound_s(one, cores, sharing, others))


@pytest.mark.parametrize(
    ("busy", "fetch", "bound"),
    [
        (10.0, 40.0, 25.0),  # all CPU work on two cores
        (10.0, 14.0, 12.0),
        (10.0, 4.0, 10.0),  # the loop itself
        (30.0, 20.0, 30.0),
    ],
)
@pytest.mark.parametrize("sharing", ENDS)
def test_one_thread_beside_workers_loses_nothing(busy: float, fetch: float, bound: float, sharing: Sharing) -> None:
    assert step_s(work(busy, fetch), sharing=sharing) == pytest.approx(bound, rel=1e-3)


def test_a_single_worker_is_as_fast_as_its_fetch() -> None:
    assert step_s(work(10.0, 40.0, workers=1.0)) == pytest.approx(40.0)
    assert step_s(work(10.0, 40.0, workers=1.0), cores=8.0) == pytest.approx(40.0)


def test_two_threads_that_run_together_need_their_cpu_seconds_and_no_more() -> None:
    for busy, fetch in ((0.2, 0.8), (0.6, 0.4)):
        together = step_s(work(busy, fetch, threads=2.0), sharing=TOGETHER)
        assert together == pytest.approx((2.0 * busy + fetch) / 2.0, rel=1e-3)


def test_two_threads_that_run_when_they_like_meet_a_quarter_of_the_time() -> None:
    # Four threads on two cores: 0.2 s of training take 0.8, in which the workers fetch 0.8 s on half of each core.
    assert step_s(work(0.2, 0.8, threads=2.0), sharing=APART) == pytest.approx(0.8, rel=1e-3)


def test_what_spins_while_the_loop_waits_takes_a_core_from_the_workers() -> None:
    apart = Sharing(1.0, spins=False)
    one, milli = work(0.002, 0.02, threads=2.0), SPIN_S / 10
    # 8 ms of training, in which the workers fetch 8 of 20 ms; 12 on two cores are 6, beside a spinning thread 9.
    assert step_s(one, sharing=apart) == pytest.approx(14 * milli, rel=1e-3)
    assert step_s(one, sharing=APART) == pytest.approx(17 * milli, rel=1e-3)


@pytest.mark.parametrize("threads", [1.0, 1.5, 2.0, 8.0])
@pytest.mark.parametrize("workers", [1.0, 2.0, 16.0])
@pytest.mark.parametrize("waiting", [0.0, 0.05])
def test_the_middle_lies_between_the_ends_and_cores_help(threads: float, workers: float, waiting: float) -> None:
    for busy, fetch in ((0.01, 0.001), (0.01, 0.01), (0.002, 0.05)):
        one = work(busy, fetch, threads, workers, waiting)
        best, usual, worst = (step_s(one, sharing=end) for end in ENDS)
        assert max(busy, (waiting + fetch) / workers) <= best * 1.001 <= usual * 1.002 <= worst * 1.003
        assert step_s(one, cores=8.0) <= usual * 1.001
        assert step_s(one, others=2.0) >= usual * 0.999


def told(loop: Loop, workers: int = 2) -> Forecast:
    """The forecast for a number of workers."""
    found = forecast(loop.vitals(), {"num_workers": workers})
    assert found is not None
    return found


ALL_CORES = Loop(wait=80.0, fetch_cpu=80.0, forward=8.0, backward=8.0, optimizer=4.0, consumer_cpu=40.0, cores=2.0)
"""A step of 100 ms: fetched in 80, trained on with both cores in 20."""


def test_where_training_uses_all_cores_workers_gain_less_than_the_cpu_seconds_would_let_them() -> None:
    """By CPU seconds alone 100 ms become 60, 1.67x: such a loop was timed at 1.39x, another of 1.72x at 1.43x."""
    seen = told(ALL_CORES)
    assert seen.speedup == pytest.approx(1.39, rel=0.1)
    assert seen.low < 1.25 and 1.6 < seen.high < 1.67 * 1.2
    other = told(ALL_CORES.but(wait=84.0, fetch_cpu=84.0, forward=6.0, backward=6.0, consumer_cpu=32.0))
    assert other.speedup == pytest.approx(1.43, rel=0.1)
    assert "the CPU work of loading and of the loop on 2 cores" in seen.why


def test_the_ends_are_wide_only_where_cores_are_shared_by_threads_that_wait_for_each_other() -> None:
    def width(loop: Loop) -> float:
        seen = told(loop)
        return seen.high / seen.low

    narrow = ALL_CORES.but(consumer_cpu=20.0)
    assert width(narrow) < 1.5 < width(ALL_CORES)
    assert width(ALL_CORES.but(cores=8.0)) < 1.5
    assert width(ALL_CORES.but(fetch_cpu=1.0)) < 1.5


def test_more_cores_than_threads_lose_nothing() -> None:
    assert told(ALL_CORES.but(cores=8.0)).speedup == pytest.approx(100 / 41, rel=0.05)


def test_a_loop_that_waits_for_its_gpu_is_no_crowd() -> None:
    waits = ALL_CORES.but(consumer_cpu=2.0)
    assert told(waits).speedup == pytest.approx(100 / 41.5, rel=0.06)


SPINNING = on_gpu(wait=5.0, workers=1, fetch=15.0, transfer=8.0, forward=0.8, backward=0.8, optimizer=0.4, cores=2.0)
"""A GPU's loop on two cores: its blocking copies wait for the GPU, and CUDA's driver takes a whole core meanwhile."""


def test_a_host_that_spins_in_copies_leaves_its_core_to_workers() -> None:
    assert told(SPINNING.but(gpu_work=9.0, gpu_gap=6.0)).speedup > 1.4, "two workers fetch in 7.5 ms, the rest is 10"


@pytest.mark.parametrize("physical", [None, 1])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(("fetch", "consumer_cpu"), [(4.0, 6.0), (8.0, 2.0), (4.0, 10.0)])
def test_more_workers_do_not_hurt_a_loop_that_its_gpu_limits(
    workers: int, physical: int | None, fetch: float, consumer_cpu: float
) -> None:
    """Two usable cores, hardware threads of one or not; the loop's CPU seconds are all of its wall-clock, or more."""
    launching = {"forward": 0.5 * (10.0 - fetch), "backward": 0.5 * (10.0 - fetch), "optimizer": 0.0}
    full = on_gpu(wait=fetch, fetch=fetch, consumer_cpu=consumer_cpu, cores=2.0, **launching)
    seen = forecast(full.but(setup={"physical_cores": physical}).vitals(), {"num_workers": workers})
    assert seen is not None and 0.97 < seen.speedup < 1.05 and seen.why == "the GPU"


def test_what_a_loop_behind_a_full_queue_would_take_without_workers_nobody_knows() -> None:
    """Of its 10 ms a step it may launch for 2 and be held up for 8, in which it could fetch."""
    full = on_gpu(workers=2, fetch=4.0)
    assert forecast(full.vitals(), {"num_workers": 0}) is None
    reading = on_gpu(workers=2, fetch=4.0, forward=1.0, backward=1.0, optimizer=0.0, sync=8.0, syncs=1.0)
    seen = forecast(reading.vitals(), {"num_workers": 0})
    assert seen is not None and 0.7 < seen.speedup < 0.9, "it reads a value each step, and only then fetches"


def test_queueing_that_a_recording_holds_is_not_counted_twice() -> None:
    """Sixteen workers on two cores: the loop's 2 ms of CPU took 18, which fewer workers would not make any longer."""
    crowd = Loop(wait=2.0, workers=16, fetch=310.0, fetch_cpu=36.0, forward=18.0, backward=0.0, optimizer=0.0)
    loop = crowd.but(consumer_cpu=2.0, cores=2.0, cpu_util=97.0)
    recording = loop.recording()
    (fetch,) = recording.fetches
    counted = dataclasses.replace(recording, fetches=(dataclasses.replace(fetch, queued_s=fetch.batches * 0.27),))
    seen = forecast(measure(counted), {"num_workers": 2})
    assert seen is not None and seen.speedup > 0.9
