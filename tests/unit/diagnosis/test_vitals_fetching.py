"""What a fetch in the loop's own process computes on other threads than its own: a worker would do it with one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.forecast.forecast import best_workers, forecast
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.recordings import Loop, on_gpu

TOKENIZED = Loop(wait=54.0, fetch_cpu=12.0, consumer_cpu=85.0, cores=4.0, setup={"torch_threads": 1})
"""A step of 10 ms behind a fetch of 54 ms, whose own thread computes for 12 and waits for others that do for 75."""


def test_a_fetch_that_computes_on_other_threads_is_no_fetch_that_waits() -> None:
    vitals = measure(TOKENIZED.recording())
    assert vitals.fetch_beside_s == pytest.approx(0.075, rel=0.01)
    assert vitals.fetch_cpu_s == pytest.approx(0.087, rel=0.01)
    assert vitals.consumer_cpu_s == pytest.approx(0.010, rel=0.01)
    one, best = forecast(vitals, {"num_workers": 1}), best_workers(vitals)
    assert one is not None and one.speedup < 1.0  # 87 ms by one thread, where four took 54
    assert best is not None and best[0] <= 4 and best[1].speedup < 64 / (97 / 4) * 1.01


def test_threads_that_spin_or_belong_to_the_loops_own_work_are_not_the_fetchs() -> None:
    quick = TOKENIZED.but(wait=8.0, fetch_cpu=8.0, consumer_cpu=45.0, setup={"torch_threads": 4})
    assert measure(quick.recording()).fetch_beside_s is None  # 40 ms in the step, and 5 of spinning
    assert measure(TOKENIZED.but(setup={}).recording()).fetch_beside_s is None  # the threads were not counted
    assert measure(TOKENIZED.but(workers=2, fetch=54.0).recording()).fetch_beside_s is None  # workers count all theirs


def test_on_a_gpu_the_host_is_one_thread() -> None:
    loop = on_gpu(wait=30.0, fetch_cpu=5.0, consumer_cpu=70.0, setup={"torch_threads": 16}, cores=16.0)
    assert measure(loop.recording()).fetch_beside_s == pytest.approx(0.060, rel=0.02)


def test_what_epochs_begin_late_is_told_by_the_clock_of_the_wait() -> None:
    """A host that runs ahead clocks 30 % of its own time, a third of the GPU's: of a wait of 20 % a tenth is left."""
    ahead = replace(on_gpu().vitals(), exposed_wait_share=0.2, edge_share=0.3, host_ahead=3.0)
    assert ahead.steady_wait_share == pytest.approx(0.1)
