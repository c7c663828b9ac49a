"""The stages of a step that a forecast is made of, and what other counts of workers make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.forecast.forecast import worker_counts
from gpu_doctor.diagnosis.forecast.removed_work import cold_share
from gpu_doctor.diagnosis.forecast.stages import Stages, stages
from gpu_doctor.diagnosis.forecast.workers import step_with
from gpu_doctor.diagnosis.vitals.fields import Vitals
from tests.support.recordings import Loop, on_gpu


def read(vitals: Vitals) -> Stages:
    found = stages(vitals)
    assert found is not None
    return found


def test_a_host_that_spins_while_it_waits_for_the_gpu_does_no_work_meanwhile() -> None:
    waits = replace(on_gpu(workers=2, fetch=4.0).vitals(), sync_share=0.5, overhead_share=0.0, data_wait_share=0.0)
    waits = replace(waits, gpu_gap_share=0.2)
    host = waits.host_step_s or waits.step_wall_s or 0.0
    assert host > 0
    spins = read(replace(waits, consumer_s=host, consumer_cpu_s=0.9 * host))
    assert spins.consumer_cpu == pytest.approx(0.4 * host)
    assert read(replace(waits, consumer_s=host, consumer_cpu_s=0.3 * host)).consumer_cpu == 0.0


def test_a_blocking_copy_spins_as_well() -> None:
    copies = on_gpu(workers=1, wait=5.0, fetch=15.0, transfer=8.0, forward=1.0, backward=1.0, optimizer=0.0)
    assert read(copies.but(gpu_work=9.0, gpu_gap=6.0).vitals()).consumer_cpu == pytest.approx(0.002, rel=0.1)


def test_behind_a_full_queue_launches_spin_and_only_the_loops_own_python_is_sure_to_need_a_core() -> None:
    behind = on_gpu(workers=1, fetch=8.0, other=3.0, gpu_work=12.95).vitals()
    assert read(behind).consumer_cpu == pytest.approx(0.003, rel=0.1)
    idling = replace(behind, gpu_gap_share=0.2)
    assert read(idling).consumer_cpu == pytest.approx(0.013, rel=0.05), "nothing but launching took the host so long"


def test_storage_is_shared_by_all_workers_of_all_loaders() -> None:
    one = replace(
        Loop(wait=8.0, workers=2, fetch=16.0, fetch_cpu=1.0).vitals(),
        fetch_read_bytes=1e12,
        loaders_at_once=1.0,
    )
    alone = read(one).storage
    assert 0 < alone < (one.step_wall_s or 0.0)
    assert read(replace(one, loaders_at_once=2.0)).storage == pytest.approx(alone / 2)
    assert read(replace(one, workers=4)).storage == pytest.approx(alone / 2)


def test_cores_that_are_given_to_our_work_are_shared_with_nobody() -> None:
    vitals = replace(Loop(wait=20.0, fetch=20.0, fetch_cpu=20.0).vitals(), usable_cores=2.0)
    crowded = replace(read(vitals), others=1.0)
    free = replace(crowded, others=0.0)
    assert step_with(crowded, 2, vitals, cores=crowded.cores) == step_with(free, 2, vitals)
    assert step_with(crowded, 2, vitals)[0] > step_with(free, 2, vitals)[0]


def test_a_loop_whose_cpu_time_nobody_counted_is_not_taken_for_other_programs() -> None:
    loop = Loop(wait=0.0, workers=1, fetch=5.0, fetch_cpu=5.0, forward=10.0, backward=10.0).vitals()
    alone = replace(loop, fetch_queued_s=0.0, consumer_cpu_s=loop.consumer_s, usable_cores=4.0, cpu_util_pct=30.0)
    assert read(alone).others == 0.0 == read(replace(alone, consumer_cpu_s=None)).others
    busy = replace(alone, cpu_util_pct=80.0)
    assert read(busy).others == read(replace(busy, consumer_cpu_s=None)).others > 1.0


def test_as_many_workers_are_thought_of_as_the_slower_of_host_and_device_asks_for() -> None:
    waits = Loop(wait=40.0, fetch=40.0, fetch_cpu=0.1, forward=20.0, backward=20.0).vitals()
    few = worker_counts(replace(waits, usable_cores=1.0))
    short = Loop(wait=40.0, fetch=40.0, fetch_cpu=0.1, forward=0.1, backward=0.1, optimizer=0.1).vitals()
    many = worker_counts(replace(short, usable_cores=1.0))
    assert max(few) < max(many)


@pytest.mark.parametrize("vitals", [Vitals(), Loop().vitals()])
def test_work_between_steps_slows_none_where_no_step_was_measured_or_there_is_no_such_work(vitals: Vitals) -> None:
    assert cold_share(vitals, 0.0) == 0.0
    assert cold_share(vitals, 0.1, calls_per_step=0.0) == 0.0
    assert (cold_share(vitals, 0.1) > 0.0) == (vitals.step_wall_s is not None)
