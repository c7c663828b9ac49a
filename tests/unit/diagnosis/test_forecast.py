"""The what-if arithmetic: workers with and without, workers that stay, two batch sizes; and where it says 'try it'."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpu_doctor.diagnosis.forecast.forecast import best_workers, fewest_near_best, forecast, worker_counts
from gpu_doctor.diagnosis.forecast.prediction import BAND, Forecast
from gpu_doctor.diagnosis.forecast.stages import HANDOVER_MOST_S
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Settings
from tests.support.recordings import Loop, on_gpu


def told(loop: Loop | Vitals, settings: Settings, *others: Vitals) -> Forecast:
    """The forecast of settings, whose ends lie on both sides of it."""
    seen = forecast(loop if isinstance(loop, Vitals) else loop.vitals(), settings, others)
    assert seen is not None
    assert seen.low < seen.speedup < seen.high
    return seen


def workers(loop: Loop | Vitals, count: int) -> Forecast:
    return told(loop, {"num_workers": count})


def counted(loop: Loop, **means: float) -> Vitals:
    """Vitals of the loop with what was counted of a mean fetch: `queued_s`, `stored_bytes`, ..."""
    recording = loop.recording()
    fetch = recording.fetches[0]
    sums: dict[str, Any] = {name: fetch.batches * value for name, value in means.items()}
    return measure(dataclasses.replace(recording, fetches=(dataclasses.replace(fetch, **sums),)))


SLEEPING = Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)
SPINNING = Loop(wait=40.0, fetch_cpu=40.0, consumer_cpu=10.0, cores=2.0)
MOST_MS = 1e3 * HANDOVER_MOST_S + 0.1
"""What handing a batch of 1e5 bytes over takes at most, where nobody measured it."""


@pytest.mark.parametrize(
    ("loop", "count", "best_ms", "worst_ms"),
    [
        (SLEEPING, 2, 20.0, 20.0),  # fetching binds: 40 / 2
        (SLEEPING, 8, 10.0, 10.0 + MOST_MS),  # the loop's own 10 ms bind, with the handover
        (SPINNING, 2, 25.0, 25.0),  # 50 ms of CPU on two cores
        (SPINNING, 16, 25.0, 25.0),
        (SPINNING.but(cores=1.0), 2, 50.0, 50.0),
        (Loop(wait=10.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0), 0, 47.0, 50.0),
        (Loop(wait=10.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0), 4, 10.0, 10.0 + MOST_MS),
        (Loop(wait=15.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0), 3, 40 / 3 + 5, 40 / 3 + 5),
    ],
)
def test_a_step_lasts_as_long_as_its_slowest_stage(loop: Loop, count: int, best_ms: float, worst_ms: float) -> None:
    seen = workers(loop, count)
    now_ms = 1e3 * (loop.vitals().step_wall_s or 0.0)
    assert 1e3 * seen.step_s == pytest.approx((best_ms + worst_ms) / 2.0, rel=0.01)
    assert seen.speedup == pytest.approx(now_ms / (1e3 * seen.step_s))
    assert seen.high / seen.low >= (1.0 + BAND) ** 2 * worst_ms / best_ms


@pytest.mark.parametrize(
    ("loop", "least", "most"),
    [(SLEEPING, 4, 8), (SPINNING, 2, 2), (SPINNING.but(cores=1.0), 1, 1), (SLEEPING.but(wait=4000.0), 12, 16)],
)
def test_as_few_workers_as_gain_nearly_the_most(loop: Loop, least: int, most: int) -> None:
    best = best_workers(loop.vitals())
    assert best is not None and least <= best[0] <= most
    assert best[1].pays == (loop.cores > 1)


def test_of_several_numbers_of_workers_the_smallest_that_is_near_the_best() -> None:
    known = {n: Forecast(one, 0.5, 9.0, 0.01, "why") for n, one in {1: 1.0, 2: 1.98, 4: 2.05}.items()}
    found = fewest_near_best(known)
    assert found is not None and found[0] == 2
    assert fewest_near_best({}) is None


def test_handing_over_is_as_the_run_measured_it() -> None:
    """Half of the batches lie ready, and such a step waits 1.5 ms; the others wait 20."""
    recording = Loop(workers=2, fetch=21.0, fetch_cpu=1.0, wait=1.5, consumer_cpu=10.0).recording()
    waits = np.where(np.arange(100) % 2 == 0, 1.5e-3, 20e-3)
    steps = dataclasses.replace(recording.steps, data_wait_s=waits, wall_s=waits + 10e-3)
    fetch = dataclasses.replace(recording.fetches[0], empty_share=0.5, ready_batches=0.5)
    vitals = measure(dataclasses.replace(recording, steps=steps, fetches=(fetch,)))
    assert vitals.handover_s == pytest.approx(1.5e-3)
    empty = dataclasses.replace(fetch, empty_share=0.99)
    assert measure(dataclasses.replace(recording, fetches=(empty,))).handover_s is None, "hardly any was ready"
    # 11.5 ms of the loop's own work bind; what the arithmetic does not explain of the 20.75 stays with more workers,
    assert workers(vitals, 8).speedup == pytest.approx(1.0, abs=0.01)
    # and may be gone with fewer: then one that fetches binds.
    assert workers(vitals, 1).high == pytest.approx(20.75 / 21.0 * 1.2, rel=0.03)


def test_a_batch_cheaper_than_its_handover_gains_nothing_that_is_sure() -> None:
    tiny = Loop(wait=0.2, forward=0.1, backward=0.1, optimizer=0.05, batch_bytes=8e3)
    assert workers(tiny, 2).speedup < 1.0 and not workers(tiny, 2).pays
    ten = Loop(wait=24.0, fetch_cpu=23.5, forward=5.0, backward=5.0, optimizer=4.0, consumer_cpu=15.0, cores=2.0)
    assert workers(ten, 2).pays


def test_data_in_memory_is_fetched_sooner_by_the_loop_itself() -> None:
    """Timed at 1.8 to 4.9 times as fast: the loop's own work takes less without workers beside it."""
    rows = Loop(steps=600, wait=1.1, workers=4, fetch=0.2, forward=0.3, backward=0.2, optimizer=0.1, cores=2.0)
    seen = workers(rows, 0)
    assert seen.pays and seen.low > 1.7 and 2.1 < seen.speedup < 3.4 < seen.high
    assert not workers(rows.but(fetch=1.1), 0).pays or workers(rows.but(fetch=1.1), 0).speedup < 1.3


def test_more_steps_make_a_forecast_surer() -> None:
    few, many = workers(SLEEPING.but(steps=10), 2), workers(SLEEPING.but(steps=1000), 2)
    assert few.high / few.low > many.high / many.low > (1.0 + BAND) ** 2


def test_on_a_busy_machine_other_programs_may_keep_their_cores() -> None:
    alone, beside = workers(SPINNING.but(cpu_util=50.0), 2), workers(SPINNING.but(cpu_util=100.0), 2)
    assert alone.speedup > 1.9 and beside.speedup < 1.5
    assert beside.low < 1.0 < alone.low and beside.high == pytest.approx(alone.high)


def test_threads_of_the_training_may_wait_for_a_core_that_a_worker_computes_on() -> None:
    loop = Loop(wait=4.0, fetch=4.0, fetch_cpu=4.0, forward=2.0, backward=2.0, cores=2.0)
    for cpu_ms, pays in ((4.5, True), (9.0, False)):
        busy = loop.but(consumer_cpu=cpu_ms, setup={"torch_threads": 2})
        found = forecast(busy.vitals(), {"num_workers": 1})
        assert found is not None and found.pays is pays
    sleeping = forecast(busy.but(fetch_cpu=0.1).vitals(), {"num_workers": 1})
    assert sleeping is not None and sleeping.pays


def test_queueing_for_a_core_is_no_part_of_a_fetch() -> None:
    """Eight workers on two cores: each fetch takes 80 ms, 20 of it on a core. Two workers do as well."""
    eight = Loop(wait=0.5, workers=8, fetch=80.0, fetch_cpu=19.0, consumer_cpu=1.0, cores=2.0)
    assert workers(counted(eight, queued_s=60e-3), 2).speedup == pytest.approx(1.0, abs=0.15)


def test_a_storage_may_serve_several_readers_no_faster_than_one() -> None:
    disk, server = (counted(SLEEPING, stored_bytes=one) for one in (4e6, 100.0))
    bound, free = workers(disk, 4), workers(server, 4)
    assert bound.low < 50 / 39 < bound.speedup < free.speedup
    assert bound.high == pytest.approx(free.high)


def test_copying_out_of_the_page_cache_may_be_bound_by_memory() -> None:
    """80 MB in 36 ms: two readers of one memory are not sure to be twice as fast."""
    warm = Loop(wait=36.0, fetch_cpu=36.0, consumer_cpu=10.0)
    copying, sipping = (workers(counted(warm, read_bytes=one), 2) for one in (8e7, 8e5))
    assert copying.low < sipping.low and copying.speedup < sipping.speedup
    assert copying.high == pytest.approx(sipping.high)


LOCKED = Loop(wait=20.0, workers=2, fetch=60.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=4.0)
"""Two workers under one lock that a batch needs for 30 ms: 30 ms a step."""


def test_workers_that_wait_for_each_other_gain_nothing_from_more_of_them() -> None:
    alone = LOCKED.but(workers=0, wait=30.0, fetch=30.0)
    assert workers(LOCKED, 8).speedup > 1.9, "one run cannot tell a lock from a slow server"
    known = told(LOCKED, {"num_workers": 8}, alone.vitals())
    assert known.speedup == pytest.approx(1.0, abs=0.05)
    as_fast = LOCKED.but(workers=4, wait=5.0).vitals()
    assert told(LOCKED, {"num_workers": 8}, as_fast).speedup > 1.9, "a fetch takes no longer with four"


@pytest.mark.parametrize(("busy", "step_ms"), [(6.0, 6.0), (1.0, 3.0)])
def test_a_gpu_is_a_floor_too(busy: float, step_ms: float) -> None:
    loop = on_gpu(wait=8.0, forward=1.0, backward=1.0, optimizer=1.0, gpu_gap=11.0 - busy, gpu_work=busy, fetch_cpu=0.5)
    assert workers(loop.but(loader={}), 16).high <= 11.0 / step_ms * 1.25


def test_behind_a_full_queue_nobody_knows_when_the_loop_could_fetch() -> None:
    full = on_gpu(workers=2, fetch=4.0)
    assert forecast(full.vitals(), {"num_workers": 0}) is None
    assert forecast(full.but(gpu_gap=3.0, wait=3.0).vitals(), {"num_workers": 0}) is not None


def test_a_driver_that_spins_needs_no_core() -> None:
    spins = on_gpu(wait=8.0, sync=8.0, gpu_gap=8.0, gpu_work=10.0, fetch_cpu=8.0, consumer_cpu=18.0, loader={})
    seen = workers(spins.but(cores=1.0), 1)
    assert seen.step_s < 0.020, "8 ms of fetching and 10 of launching on one core, not 26"


def test_settings_that_the_run_had_are_left_aside() -> None:
    loop = SLEEPING.but(settings={"amp": "bf16"})
    assert told(loop, {"amp": "bf16", "num_workers": 2}).speedup == workers(SLEEPING, 2).speedup
    assert forecast(SLEEPING.vitals(), {"num_workers": 0}) is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"amp": "bf16"},
        {"compile": True},
        {"prefetch_factor": 8},
        {"fused_optimizer": True},
        {"persistent_workers": True},
        {"batch_size": 64},
        {"num_workers": -1},
        {"num_workers": 2, "amp": "bf16"},
        {"num_workers": 2, "batch_size": 64},
    ],
    ids=str,
)
def test_what_cannot_be_known_is_none(settings: Settings) -> None:
    assert forecast(SLEEPING.vitals(), settings) is None


def test_too_few_steps_or_no_meter_is_none() -> None:
    assert forecast(SLEEPING.but(steps=4).vitals(), {"num_workers": 2}) is None
    assert best_workers(Loop(has_loader=False).vitals()) is None
    assert worker_counts(Loop(has_loader=False).vitals()) == []


# ---- epochs ----------------------------------------------------------------------------------------------------------

SHORT = Loop(workers=2, fetch=20.0, edge=100.0, steps_per_epoch=10)


def test_kept_workers_save_the_edge_but_not_its_first_batch() -> None:
    # 9 edges in 99 steps of 10 ms: 900 + 990 ms before, 9 * 20 + 990 ms after
    seen = told(SHORT, {"persistent_workers": True})
    assert seen.speedup == pytest.approx((900 + 990) / (9 * 20 + 990), rel=0.02)
    assert forecast(SHORT.but(steps_per_epoch=1000).vitals(), {"persistent_workers": True}) is None


def test_on_a_gpu_an_edge_costs_no_more_than_the_device_waits() -> None:
    """As host and device clocks were once mixed: 47 % of the host's time, while the GPU waits for 9 %."""
    loop = on_gpu(workers=2, fetch=2.0, edge=100.0, steps_per_epoch=10, gpu_gap=1.0, gpu_work=18.0)
    vitals = loop.vitals()
    assert vitals.exposed_wait_share is not None and (vitals.edge_share or 0.0) > 4 * vitals.exposed_wait_share
    seen = told(vitals, {"persistent_workers": True})
    assert seen.speedup <= 1.0 / (1.0 - vitals.exposed_wait_share)


def test_workers_that_stay_start_once() -> None:
    short = SLEEPING.but(steps_per_epoch=4)
    start, kept = workers(short, 4), told(short, {"num_workers": 4, "persistent_workers": True})
    assert start.speedup < kept.speedup < workers(SLEEPING, 4).speedup
    assert kept.low > start.low, "what starting costs nobody measured"
    spawned = workers(short.but(loader={"start_method": "spawn"}), 4)
    assert spawned.low < 0.1 and not spawned.pays


def test_more_workers_than_now_pay_more_for_their_starts() -> None:
    four = Loop(workers=4, wait=0.0, fetch=10.0, fetch_cpu=0.5, edge=100.0, steps_per_epoch=10)
    assert workers(four, 2).speedup > 1.05
    assert 0.9 > workers(four, 8).speedup > workers(four, 16).speedup


# ---- several loaders -------------------------------------------------------------------------------------------------


def zipped(loop: Loop, other_ms: float) -> Vitals:
    """Vitals of the loop where every step pulls from a second loader too, whose fetch takes so long (wall)."""
    recording = loop.recording()
    steps, (mine,) = recording.steps, recording.fetches
    beside = dataclasses.replace(
        mine, loader="Other[200] batch 8 RandomSampler #0", wall_s=mine.batches * other_ms * 1e-3
    )
    twice = dataclasses.replace(steps, batches=steps.batches * 2, wall_s=steps.wall_s + other_ms * 1e-3)
    waits = dataclasses.replace(twice, data_wait_s=steps.data_wait_s + other_ms * 1e-3)
    return measure(dataclasses.replace(recording, steps=waits, fetches=(mine, beside)))


@pytest.mark.parametrize(
    ("other_ms", "loaders", "speedup", "said"), [(40.0, 2.0, 90 / 20, True), (1.0, 41 / 40, 51 / 20, False)]
)
def test_two_loaders_in_a_zip_have_their_own_workers(
    other_ms: float, loaders: float, speedup: float, said: bool
) -> None:
    both = zipped(SLEEPING, other_ms)
    assert both.loaders_at_once == pytest.approx(loaders) and both.batches_per_step == 2.0
    assert workers(both, 2).speedup == pytest.approx(speedup, rel=0.05)
    assert ("for each loader" in workers(both, 2).why) is said


def test_loaders_are_beside_each_other_by_what_they_delivered_and_not_by_what_was_metered() -> None:
    recording = SLEEPING.recording()
    (mine,) = recording.fetches
    steps = dataclasses.replace(recording.steps, batches=recording.steps.batches * 2)

    def loaders(delivered: int | None, metered: int) -> float | None:
        one = dataclasses.replace(mine, batches=100, delivered=None if delivered is None else 1100)
        other = dataclasses.replace(mine, loader="Other[9] #0", batches=metered, delivered=delivered)
        return measure(dataclasses.replace(recording, steps=steps, fetches=(one, other))).loaders_at_once

    assert loaders(60, 60) == 1.0  # a look at other data, all of it metered
    assert loaders(1100, 40) == pytest.approx(2.0)  # a zip, of which less was metered
    assert loaders(None, 60) == pytest.approx(2.0)  # an old recording says no more
    assert measure(dataclasses.replace(recording, steps=steps)).loaders_at_once == 1.0, "two micro-batches of one"


# ---- batch sizes -----------------------------------------------------------------------------------------------------


def test_batch_size_from_two_sizes() -> None:
    # 8 ms plus 0.1 ms a sample: 32 -> 11.2 ms, 64 -> 14.4 ms, so 128 -> 20.8 ms
    small = Loop(batch=32, forward=11.2, backward=0, optimizer=0)
    large = Loop(batch=64, forward=14.4, backward=0, optimizer=0, settings={"batch_size": 64})
    seen = told(small, {"batch_size": 128}, large.vitals())
    assert seen.speedup == pytest.approx((128 / 20.8) / (32 / 11.2), rel=0.02)
    assert seen.peak_bytes is None
    bent = small.but(batch=8, forward=99.0, settings={"batch_size": 8})
    assert told(small, {"batch_size": 128}, bent.vitals(), large.vitals()) == seen, "the nearest size tells most"


def test_a_batch_size_far_from_those_seen_is_less_sure() -> None:
    small, large = Loop(), Loop(batch=64, forward=6.0, settings={"batch_size": 64}).vitals()

    def width(size: int) -> float:
        seen = told(small, {"batch_size": size}, large)
        return seen.high / seen.low

    assert width(8) > width(16) > width(48) < width(128) < width(256)


def test_memory_of_a_larger_batch_from_two_sizes() -> None:
    small = on_gpu(batch=32, peak_share=0.2)
    large = on_gpu(batch=64, peak_share=0.3, settings={"batch_size": 64})
    seen = told(small, {"batch_size": 320}, large.vitals())
    assert seen.peak_bytes == pytest.approx(1.1 * 80e9, rel=0.01)
    assert "not fit" in seen.why


def test_another_batch_size_under_other_settings_tells_nothing() -> None:
    other = Loop(batch=64, settings={"batch_size": 64, "num_workers": 2})
    assert forecast(Loop().vitals(), {"batch_size": 128}, others=[other.vitals()]) is None
