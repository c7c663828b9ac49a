"""The what-if model: what workers, batches and kept workers give, by physics alone, and where it says 'measure it'."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.diagnosis.forecast.forecast import best_workers, enough, forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import unqueued_fetch_s
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Speeds
from tests.support.recordings import Loop, on_gpu, read


def workers(loop: Loop, count: int) -> Forecast:
    """The forecast for a number of workers."""
    seen = forecast(loop.vitals(), {"num_workers": count})
    assert seen is not None
    assert seen.low <= seen.speedup <= seen.high
    return seen


SLEEPING = Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)
SPINNING = Loop(wait=40.0, fetch_cpu=40.0, consumer_cpu=10.0, cores=2.0)


def test_workers_that_wait_share_the_waiting() -> None:
    # 40 ms of fetch and 10 ms of training: 50 ms, then 20 ms with two workers
    assert workers(SLEEPING, 2).speedup == pytest.approx(2.5, rel=0.1)
    assert workers(SLEEPING, 4).speedup == pytest.approx(50 / 10.6, rel=0.1)


def test_a_sleeping_dataset_is_not_capped_at_the_cores() -> None:
    best = best_workers(SLEEPING.vitals())
    assert best is not None and best[0] >= 4


def test_a_computing_dataset_gets_no_more_workers_than_cores() -> None:
    best = best_workers(SPINNING.vitals())
    assert best is not None and best[0] <= 2
    # two cores give 50 ms of CPU work in 25 ms at best
    assert workers(SPINNING, 2).speedup == pytest.approx(2.0, rel=0.1)
    assert workers(SPINNING, 16).speedup <= 2.0


def test_no_gain_on_a_single_core_that_computes() -> None:
    best = best_workers(SPINNING.but(cores=1.0).vitals())
    assert best is not None and best[1].speedup < 1.05


def test_the_loops_own_work_is_the_floor() -> None:
    assert workers(SLEEPING, 64).step_s >= 0.010


@pytest.mark.parametrize("steps", [10, 100, 1000])
def test_the_best_end_is_near_what_the_loops_own_work_allows(steps: int) -> None:
    # 50 ms become 10 at best; what may be wrong with the measured 10 ms leaves room for some more, less after many.
    handed_at_once = {"speeds": Speeds(message_s=1e-6, new_byte_s=1e-12)}
    best = workers(SLEEPING.but(steps=steps, setup=handed_at_once), 8).high
    assert 5.0 < best < 5.0 * (1.07 + 0.3 / steps**0.5)


def test_a_fetch_stretched_by_a_busy_machine_still_computes() -> None:
    # 30 of 40 ms on a core, 10 ms queueing for it: workers will queue as well, two cores give 50 ms in 25 ms at best.
    busy = Loop(wait=40.0, fetch_cpu=30.0, consumer_cpu=10.0, cores=2.0, cpu_util=97.0)
    idle = busy.but(cpu_util=55.0)
    assert workers(busy, 4).speedup <= 2.0
    assert workers(busy, 4).speedup < workers(idle, 4).speedup


def queued(loop: Loop, ms: float) -> Vitals:
    """Vitals of the loop whose fetches queued for a core for so many ms each, as the kernel counts it."""
    recording = loop.recording()
    fetch = recording.fetches[0]
    counted = dataclasses.replace(fetch, queued_s=fetch.batches * ms * 1e-3)
    return measure(dataclasses.replace(recording, fetches=(counted,)))


# A fetch of 40 ms of which it computes 20 and queues for 20, on two cores that other programs keep busy.
CONTENDED = Loop(wait=40.0, fetch_cpu=20.0, consumer_cpu=10.0, cores=2.0, cpu_util=100.0)


def test_where_other_programs_take_the_cores_the_gain_is_uncertain_and_it_says_so() -> None:
    seen = forecast(queued(CONTENDED, 20.0), {"num_workers": 2})
    assert seen is not None and "busy machine" in seen.why
    # By threads: others 2.8, ours 3: about one core for 30 ms. By users: 0.6 cores, no gain at all.
    assert seen.low < 1.0 < seen.speedup < 1.5 < seen.high < 2.2
    assert seen.high / seen.low > 2.0


def test_workers_that_would_only_queue_are_not_forecast_to_help() -> None:
    # Eight spinning programs on two cores: the fetch gets a fifth of a core and with workers little more.
    swamped = Loop(wait=100.0, fetch_cpu=20.0, consumer_cpu=2.0, cores=2.0, cpu_util=100.0)
    vitals = queued(swamped, 80.0)
    best = best_workers(vitals)
    assert best is not None and best[0] <= 2
    assert best[1].low < 1.0 and "busy machine" in best[1].why


def test_a_fetch_that_waits_gains_from_workers_on_a_busy_machine_too() -> None:
    sleeping = queued(CONTENDED.but(fetch_cpu=1.0, consumer_cpu=1.0), 1.0)
    seen = forecast(sleeping, {"num_workers": 4})
    assert seen is not None and seen.speedup > 3.0


def test_what_queues_after_each_sleep_does_not_tell_how_many_others_there_are() -> None:
    """Measured beside some seven busy threads: 8 samples that sleep 1.2 ms queued 14 ms for 0.8 ms of CPU."""
    loop = Loop(wait=24.0, fetch_cpu=0.8, forward=7.0, backward=7.0, optimizer=2.8, consumer_cpu=4.5, cores=2.0)
    seen = forecast(queued(loop.but(cpu_util=100.0), 13.7), {"num_workers": 4})
    assert seen is not None and "about 7 threads" in seen.why
    assert seen.speedup > 1.2 and seen.low < seen.speedup < seen.high


def test_queueing_that_is_our_own_is_no_busy_machine() -> None:
    # Eight workers on two cores, nobody else: 80 ms a fetch, 19 on a core, 60 queueing. Two workers do as well.
    eight = Loop(wait=0.5, workers=8, fetch=80.0, fetch_cpu=19.0, consumer_cpu=1.0, cores=2.0, cpu_util=100.0)
    seen = forecast(queued(eight, 60.0), {"num_workers": 2})
    assert seen is not None and "busy machine" not in seen.why
    assert seen.speedup == pytest.approx(1.0, abs=0.15)


def test_an_idle_machine_is_forecast_as_before() -> None:
    for count in (2, 4):
        for loop in (SLEEPING.but(cpu_util=12.0), SPINNING.but(cpu_util=52.0)):  # what they use themselves
            plain = workers(loop, count)
            counted = forecast(queued(loop, 0.0), {"num_workers": count})
            assert counted is not None and counted.speedup == pytest.approx(plain.speedup, rel=0.02)


def test_one_other_program_on_the_second_core_is_seen_though_nothing_queues() -> None:
    alone = forecast(queued(SPINNING.but(cpu_util=50.0), 0.0), {"num_workers": 2})
    beside = forecast(queued(SPINNING.but(cpu_util=100.0), 0.0), {"num_workers": 2})
    assert alone is not None and beside is not None
    assert alone.speedup > 1.8 > 1.5 > beside.speedup
    assert beside.low < 1.0


def test_queueing_is_taken_out_of_what_a_fetch_takes() -> None:
    vitals = queued(CONTENDED, 20.0)
    assert unqueued_fetch_s(vitals) == pytest.approx(0.020, rel=0.01)
    eight = Loop(wait=0.5, workers=8, fetch=80.0, fetch_cpu=19.0, consumer_cpu=1.0, cores=2.0)
    assert unqueued_fetch_s(queued(eight, 60.0)) == pytest.approx(0.020, rel=0.01)


def test_handing_over_a_batch_is_paid() -> None:
    # A fetch of 0.2 ms is cheaper than the hand-over from a worker.
    tiny = Loop(wait=0.2, forward=0.1, backward=0.1, optimizer=0.05, batch_bytes=8e3)
    assert workers(tiny, 2).speedup < 1.0
    heavy = Loop(wait=20.0, batch_bytes=100e6, cores=8.0)
    assert workers(heavy, 8).speedup < workers(heavy.but(batch_bytes=1e5), 8).speedup


def test_short_epochs_pay_for_starting_workers() -> None:
    short = SLEEPING.but(steps_per_epoch=4)
    assert workers(short, 4).speedup < workers(SLEEPING, 4).speedup


def test_more_workers_than_now_pay_more_for_their_starts() -> None:
    # Every tenth step waits 100 ms until four workers have started, ten of the twenty ms a step takes then.
    four = Loop(workers=4, wait=0.0, fetch=10.0, fetch_cpu=0.5, edge=100.0, steps_per_epoch=10)
    assert workers(four, 2).speedup > 1.05
    assert 0.9 > workers(four, 8).speedup > workers(four, 16).speedup


def test_from_workers_back_to_none() -> None:
    # Two workers that sleep 40 ms a batch deliver one every 20 ms; alone the loop takes 50.
    two = Loop(wait=10.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)
    assert workers(two, 0).speedup == pytest.approx(20 / 50, rel=0.1)


def test_queueing_for_cores_is_taken_out_of_a_workers_fetch() -> None:
    # Eight workers on two cores: each fetch takes 80 ms, 20 of it on a core. Two workers do as well.
    eight = Loop(wait=0.5, workers=8, fetch=80.0, fetch_cpu=19.0, consumer_cpu=1.0, cores=2.0)
    assert workers(eight, 2).speedup == pytest.approx(1.0, abs=0.15)


def test_a_gpu_is_a_floor_too() -> None:
    loop = on_gpu(wait=8.0, forward=1.0, backward=1.0, optimizer=1.0, gpu_gap=5.0, gpu_work=6.0, fetch_cpu=0.5)
    assert workers(loop.but(loader={}), 16).step_s >= 0.0055


def test_few_steps_widen_the_interval() -> None:
    few, many = workers(SLEEPING.but(steps=10), 2), workers(SLEEPING.but(steps=1000), 2)
    assert few.high / few.low > many.high / many.low


@pytest.mark.parametrize(
    "settings", [{"amp": "bf16"}, {"compile": True}, {"pin_memory": True}, {}, {"num_workers": 2, "amp": "bf16"}]
)
def test_what_cannot_be_known_is_none(settings: dict[str, object]) -> None:
    assert forecast(SLEEPING.vitals(), settings) is None  # type: ignore[arg-type]


def test_settings_that_the_run_had_are_left_aside() -> None:
    loop = SLEEPING.but(settings={"amp": "bf16"})
    with_amp = forecast(loop.vitals(), {"amp": "bf16", "num_workers": 2})
    assert with_amp is not None and with_amp.speedup == pytest.approx(workers(SLEEPING, 2).speedup)
    assert forecast(SLEEPING.vitals(), {"num_workers": 0}) is None


def test_too_few_steps_or_no_meter_is_none() -> None:
    assert forecast(SLEEPING.but(steps=4).vitals(), {"num_workers": 2}) is None
    assert best_workers(Loop(has_loader=False).vitals()) is None


def test_batch_size_from_two_sizes() -> None:
    # 8 ms plus 0.1 ms a sample: 32 -> 11.2 ms, 64 -> 14.4 ms, so 128 -> 20.8 ms
    small = Loop(batch=32, forward=11.2, backward=0, optimizer=0)
    large = Loop(batch=64, forward=14.4, backward=0, optimizer=0, settings={"batch_size": 64})
    seen = forecast(small.vitals(), {"batch_size": 128}, others=[large.vitals()])
    assert seen is not None
    assert seen.speedup == pytest.approx((128 / 20.8) / (32 / 11.2), rel=0.02)
    assert seen.peak_bytes is None


def test_a_batch_size_far_from_those_seen_is_less_sure() -> None:
    small, large = Loop(), Loop(batch=64, forward=6.0, settings={"batch_size": 64}).vitals()

    def width(size: int) -> float:
        seen = forecast(small.vitals(), {"batch_size": size}, others=[large])
        assert seen is not None
        return seen.high / seen.low

    assert width(8) > width(16) > width(48) < width(128) < width(256)


def test_memory_of_a_larger_batch_from_two_sizes() -> None:
    small = on_gpu(batch=32, peak_share=0.2)
    large = on_gpu(batch=64, peak_share=0.3, settings={"batch_size": 64})
    seen = forecast(small.vitals(), {"batch_size": 320}, others=[large.vitals()])
    assert seen is not None and seen.peak_bytes == pytest.approx(1.1 * 80e9, rel=0.01)
    assert "not fit" in seen.why


def test_batch_size_from_one_size_is_known_only_where_fetching_is_all() -> None:
    assert forecast(Loop(wait=100.0).vitals(), {"batch_size": 64}) is not None
    assert forecast(Loop(wait=2.0).vitals(), {"batch_size": 128}) is None


def test_another_batch_size_under_other_settings_tells_nothing() -> None:
    other = Loop(batch=64, settings={"batch_size": 64, "num_workers": 2})
    assert forecast(Loop().vitals(), {"batch_size": 128}, others=[other.vitals()]) is None


def test_kept_workers_save_the_edge_but_not_its_first_batch() -> None:
    loop = Loop(workers=2, fetch=20.0, edge=100.0, steps_per_epoch=10)
    seen = forecast(loop.vitals(), {"persistent_workers": True})
    # 9 edges in 99 steps of 10 ms: 900 + 990 ms before, 9 * 20.6 + 990 ms after
    assert seen is not None and seen.speedup == pytest.approx((900 + 990) / (9 * 20.6 + 990), rel=0.02)


def test_kept_workers_tell_nothing_within_one_epoch() -> None:
    loop = Loop(workers=2, fetch=20.0, edge=100.0, steps_per_epoch=1000)
    assert forecast(loop.vitals(), {"persistent_workers": True}) is None


def test_a_forecast_is_a_function_of_its_arguments() -> None:
    recording = SLEEPING.recording()
    first, second = (forecast(measure(recording), {"num_workers": 4}) for _ in range(2))
    assert first == second


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


def test_two_loaders_in_a_zip_have_their_own_workers() -> None:
    # 40 ms from each loader and 10 ms of training: 90 ms; two workers for each deliver both batches in 20 ms
    both = zipped(SLEEPING, 40.0)
    assert both.loaders_at_once == pytest.approx(2.0) and both.batches_per_step == 2.0
    seen = forecast(both, {"num_workers": 2})
    assert seen is not None and seen.speedup == pytest.approx(90 / 20.6, rel=0.05)
    assert "for each loader" in seen.why


def test_a_cheap_loader_beside_a_dear_one_counts_little() -> None:
    both = zipped(SLEEPING, 1.0)
    assert both.loaders_at_once == pytest.approx(41 / 40)
    seen = forecast(both, {"num_workers": 2})
    assert seen is not None and seen.speedup == pytest.approx(51 / 20, rel=0.08)


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


def test_two_micro_batches_from_one_loader_are_no_two_loaders() -> None:
    recording = SLEEPING.recording()
    steps = dataclasses.replace(recording.steps, batches=recording.steps.batches * 2)
    assert measure(dataclasses.replace(recording, steps=steps)).loaders_at_once == 1.0


def test_a_stream_without_length_pays_for_its_epochs_too() -> None:
    # The clinic's stream: 25 batches an epoch, nobody can say so but the epochs that were seen.
    known = Loop(wait=25.7, fetch_cpu=0.6, consumer_cpu=1.0, forward=0.3, backward=0.3, optimizer=0.1, cores=2.0).but(
        steps=75, steps_per_epoch=25
    )
    stream = known.but(loader={"batches": None, "dataset_len": None})
    assert workers(stream, 8).speedup == pytest.approx(workers(known, 8).speedup, rel=0.1)
    assert workers(stream, 16).speedup < 5.0  # and not 16 times, as if workers came from nowhere
    assert workers(stream, 8).speedup == pytest.approx(4.08, rel=0.15)  # what the clinic timed


def test_a_stream_of_a_single_batch_starts_workers_for_each() -> None:
    known = SLEEPING.but(steps_per_epoch=1)
    stream = known.but(loader={"batches": None, "dataset_len": None})
    assert workers(stream, 2).speedup == pytest.approx(workers(known, 2).speedup)


def test_workers_that_have_started_fetch_while_others_start() -> None:
    # Bound by fetching, half of the workers are late on average; bound by the loop, all of them are waited for.
    slow = SLEEPING.but(wait=200.0, steps_per_epoch=20)
    fetching = workers(slow, 8)
    assert fetching.step_s == pytest.approx((200 + 0.5) / 8e3 + (0.013 * 4.5 + 0.1) / 20, rel=0.05)
    looping = workers(slow.but(wait=20.0), 8)
    assert looping.step_s == pytest.approx(0.0106 + (0.013 * 8 + 0.01) / 20, rel=0.05)


def reading(loop: Loop, stored_bytes: float) -> Vitals:
    """Vitals of the loop whose fetches read so many bytes each from the storage itself."""
    recording = loop.recording()
    fetch = dataclasses.replace(recording.fetches[0], stored_bytes=recording.fetches[0].batches * stored_bytes)
    return measure(dataclasses.replace(recording, fetches=(fetch,)))


def test_a_storage_may_serve_several_readers_no_faster_than_one() -> None:
    disk = SLEEPING.but(fetch_cpu=15.0)
    seen = forecast(reading(disk, 4e6), {"num_workers": 4})
    server = forecast(reading(disk, 100.0), {"num_workers": 4})  # waits, but not for bytes of a disk
    assert seen is not None and server is not None
    assert seen.low <= 50 / 40 < seen.speedup < server.speedup == workers(disk, 4).speedup
    assert seen.high >= server.speedup and "as far as storage and memory serve" in seen.why


def test_a_library_read_once_from_the_disk_makes_no_storage_of_a_sleep() -> None:
    # 8 kB a fetch on average, all of them in one fetch of a hundred: pages of a program that were read anew.
    recording = SLEEPING.recording()
    fetch = recording.fetches[0]
    once, each = (
        measure(
            dataclasses.replace(
                recording,
                fetches=(dataclasses.replace(fetch, stored_bytes=8e3 * fetch.batches, stored_s=part * fetch.wall_s),),
            )
        )
        for part in (0.01, 1.0)
    )
    free, bound = forecast(once, {"num_workers": 4}), forecast(each, {"num_workers": 4})
    assert once.fetch_stored_share == pytest.approx(0.01)
    assert free is not None and bound is not None
    assert free.speedup == workers(SLEEPING, 4).speedup > bound.speedup


def test_workers_that_may_make_the_loop_slower_are_not_advised() -> None:
    # The clinic's table of text: 2.4 ms of Python a batch beside 1.4 ms of training. Handing a batch over costs about
    # as much as it saves, and where it is dear, more: 0.83x was timed with two workers.
    small = Loop(wait=2.4, fetch_cpu=2.35, forward=0.5, backward=0.5, optimizer=0.4, consumer_cpu=1.5, cores=2.0)
    found = best_workers(measure(small.recording()))
    assert found is not None and (found[1].feared or 9.0) < 1.0 and not found[1].pays
    ten = small.but(wait=24.0, fetch_cpu=23.5, forward=5.0, backward=5.0, optimizer=4.0, consumer_cpu=15.0)
    paying = best_workers(measure(ten.recording()))
    assert paying is not None and paying[1].pays
    # Workers that run hand over already: what that costs here is in the measured step.
    one = Loop(wait=8.0, workers=1, fetch=20.0, fetch_cpu=2.0, forward=8.0, backward=8.0, optimizer=4.0, cores=2.0)
    more = best_workers(measure(one.recording()))
    assert more is not None and more[1].feared is None


def test_where_starts_are_dear_as_many_are_advised_as_are_sure_to_pay() -> None:
    # 30 batches a second long in a kernel that holds 2 GB: timed 1.32x with two workers, 1.42x with four, 1.06x with
    # eight, of which each took a tenth of a second to start and end (5 MB of page tables on a slow machine).
    late = Loop(steps=30, wait=33.0, fetch_cpu=0.3, forward=0.1, backward=0.1, optimizer=0.1, cores=2.0)
    recording = dataclasses.replace(late.recording(), duration_s=1.0)
    setup = recording.setup
    loader = dataclasses.replace(setup.loaders[0], batches=30)
    recording = dataclasses.replace(recording, setup=dataclasses.replace(setup, loaders=(loader,)))
    vitals = measure(read(recording, None, process_page_table_bytes=7.5e6))
    fastest = forecast(vitals, {"num_workers": 4})
    found = best_workers(vitals)
    assert fastest is not None and not fastest.pays
    assert found is not None and found[1].pays and found[0] < 4 and fastest.speedup > found[1].speedup > 1.2


def test_copying_out_of_the_page_cache_is_bound_by_memory() -> None:
    # 8 MB in 3.6 ms: two readers of one memory are not twice as fast
    warm = Loop(wait=3.6, fetch_cpu=3.6, forward=0.5, backward=0.5, optimizer=0.4, consumer_cpu=1.4, cores=4.0)
    recording = warm.recording()
    fetch = recording.fetches[0]
    copying, sipping = (
        forecast(
            measure(
                dataclasses.replace(recording, fetches=(dataclasses.replace(fetch, read_bytes=size * fetch.batches),))
            ),
            {"num_workers": 2},
        )
        for size in (8e6, 8e4)
    )
    assert copying is not None and sipping is not None
    assert copying.low < 1.0 < copying.speedup < 0.95 * sipping.speedup
    assert "memory" in copying.why and "memory" not in sipping.why


def test_a_storage_that_keeps_up_limits_nothing() -> None:
    computing = SLEEPING.but(fetch_cpu=35.0)
    seen = forecast(reading(computing, 4e6), {"num_workers": 2})
    assert seen is not None and seen.speedup == workers(computing, 2).speedup


def test_of_several_numbers_of_workers_one_is_always_advised() -> None:
    def told(speedup: float, hoped: float) -> Forecast:
        return Forecast(speedup, 0.5, 9.0, 0.01, "why", hoped=hoped)

    assert enough({1: told(1.0, 1.0), 2: told(2.0, 2.1), 4: told(2.05, 2.8), 8: told(2.06, 2.85)}) is not None
    both = enough({1: told(1.0, 1.0), 2: told(2.0, 2.1), 4: told(2.05, 2.8), 8: told(2.06, 2.85)})
    assert both is not None and both[0] == 4, "a few more cost nothing, should handing over be cheap here"
    apart = enough({2: told(2.0, 2.1), 8: told(1.5, 4.0)})
    assert apart is not None and apart[0] == 2
    assert enough({}) is None
