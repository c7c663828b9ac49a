"""Several settings at once: each changes stages of the step, and the slowest binds; some in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpu_doctor
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Settings, SettingValue
from gpu_doctor.trials import race
from tests.support.recordings import Loop, on_gpu
from tests.support.training_worlds import World, recorded

SLEEPING = Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)
"""A fetch of 40 ms that waits, and 10 ms of training."""
WORLDS = {
    "waits": World(waits=20.0, computes=1.0, fixed=0.5),
    "computes": World(computes=12.0, trains=4.0, updates=2.0, fixed=0.5),
    "an optimizer": World(waits=8.0, computes=1.0, trains=2.0, updates=4.0),
    "short epochs": World(waits=8.0, epoch=20),
}
SEVERAL: tuple[Settings, ...] = (
    {"num_workers": 2, "fused_optimizer": True},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 2, "batch_size": 128},
    {"num_workers": 4, "persistent_workers": True, "fused_optimizer": True},
    {"num_workers": 4, "batch_size": 64, "fused_optimizer": True},
)


def seen(world: World, **settings: SettingValue) -> Vitals:
    return measure(recorded(world, settings, 240, np.random.default_rng(1)))


def told(vitals: Vitals, settings: Settings, *others: Vitals) -> Forecast:
    found = forecast(vitals, settings, others)
    assert found is not None, settings
    assert found.low <= found.speedup <= found.high
    return found


@pytest.mark.parametrize("settings", SEVERAL, ids=str)
@pytest.mark.parametrize("name", WORLDS)
def test_the_truth_lies_between_its_ends(name: str, settings: Settings) -> None:
    world = WORLDS[name]
    vitals = seen(world)
    other = [seen(world, batch_size=128)] if "batch_size" in settings else []
    found, truth = told(vitals, settings, *other), world.rate(settings) / world.rate({})
    assert found.low <= truth <= found.high, (found, truth)
    assert found.speedup == pytest.approx(truth, rel=0.3)


def test_gains_are_not_multiplied() -> None:
    both: Settings = {"num_workers": 2, "fused_optimizer": True}
    # The optimizer is most of what workers leave: 4 ms of 15, then of 7.
    world = WORLDS["an optimizer"]
    vitals = seen(world)
    truth = world.rate(both) / world.rate({})
    product = told(vitals, {"num_workers": 2}).speedup * told(vitals, {"fused_optimizer": True}).speedup
    assert abs(told(vitals, both).speedup - truth) < 0.6 * abs(product - truth)
    # Where workers are not done in time, a faster optimizer gains nothing.
    waits = seen(WORLDS["waits"])
    assert told(waits, both).speedup == pytest.approx(told(waits, {"num_workers": 2}).speedup, rel=0.02)


def test_a_batch_that_was_not_seen_leaves_open_how_the_training_grows() -> None:
    # Fetching is four fifths of the step, so that alone it hardly matters: 0.82 to 1.31.
    alone, fetching = told(SLEEPING.vitals(), {"batch_size": 64}), told(SLEEPING.vitals(), {"num_workers": 2})
    bound = told(SLEEPING.vitals(), {"num_workers": 2, "batch_size": 64})
    assert bound.speedup == pytest.approx(fetching.speedup, rel=0.05), "80 ms of fetching for two, whatever trains"
    # Eight workers fetch 80 ms in 10: training takes 10 ms as ever, or 20: 10 ms a batch of 32, or 5.
    free = told(SLEEPING.vitals(), {"num_workers": 8, "batch_size": 64})
    assert free.low < 50 / 10.5 and free.high > 0.9 * 50 / 5.5
    assert free.high / free.low > 1.2 * alone.high / alone.low


def test_another_run_tells_how_the_training_grows() -> None:
    larger = SLEEPING.but(batch=64, wait=80.0, fetch_cpu=2.0, forward=9.0, settings={"batch_size": 64})
    both: Settings = {"num_workers": 8, "batch_size": 64}
    found, blind = told(SLEEPING.vitals(), both, larger.vitals()), told(SLEEPING.vitals(), both)
    assert found.speedup == pytest.approx(2 * 50 / 16.5, rel=0.06), "15 ms of training, and handing over"
    assert found.high / found.low < blind.high / blind.low


def test_workers_that_stay_pay_their_start_once() -> None:
    short = SLEEPING.but(steps_per_epoch=20).vitals()
    start, stay = told(short, {"num_workers": 2}), told(short, {"num_workers": 2, "persistent_workers": True})
    assert stay.speedup > 1.03 * start.speedup
    long = SLEEPING.vitals()
    stays = told(long, {"num_workers": 2, "persistent_workers": True})
    assert stays.speedup == pytest.approx(told(long, {"num_workers": 2}).speedup, rel=0.02)
    assert forecast(long, {"persistent_workers": True, "batch_size": 64}) is None, "there are no workers that could"


def test_workers_that_start_anew_now_may_stay_and_be_more() -> None:
    # Each epoch of ten steps waits 100 ms for two workers to start: more workers start longer, unless they stay.
    two = Loop(workers=2, wait=0.0, fetch=20.0, fetch_cpu=1.0, edge=100.0, steps_per_epoch=10)
    more, stay = ({"num_workers": 4}, {"persistent_workers": True})
    both = told(two.vitals(), {**more, **stay})
    assert both.speedup > 1.3 > 1.0 > told(two.vitals(), more).speedup
    assert both.speedup < told(two.vitals(), stay).speedup
    no_start = two.but(edge=0.0).vitals()
    assert forecast(no_start, {**more, **stay}) is None, "no epoch's begin was seen to cost anything"


def test_memory_is_told_beside_workers_as_for_the_batch_alone() -> None:
    small, large = on_gpu(peak_share=0.2), on_gpu(batch=64, peak_share=0.3, settings={"batch_size": 64})
    found = told(small.vitals(), {"batch_size": 320, "num_workers": 2}, large.vitals())
    assert found.peak_bytes == pytest.approx(1.1 * 80e9, rel=0.01)
    assert told(small.vitals(), {"num_workers": 2, "persistent_workers": True}).peak_bytes is None


def test_copies_and_workers() -> None:
    # 20 ms of fetching, 10 ms of the GPU, 5 ms of copying 50 MB from pageable memory of which 2 remain.
    loop = on_gpu(wait=20.0, transfer=5.0, gpu_gap=25.0, pageable=2.0, batch_bytes=50e6, fetch_cpu=1.0, cores=16.0)
    vitals = replace(loop.but(loader={}).vitals(), pcie_gen=4.0, pcie_width=16.0)
    pinned: Settings = {"pin_memory": True}
    eight: Settings = {"num_workers": 8}
    both = told(vitals, {**pinned, **eight})
    assert both.speedup > 1.05 * told(vitals, eight).speedup, "a thread of the loader pins them then, not the loop"
    assert told(vitals, {**pinned, **eight, "non_blocking": True}).speedup >= 0.99 * both.speedup
    assert told(vitals, pinned).speedup < 1.0, "alone the loop pins each batch itself"


@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 2, "amp": "bf16"},
        {"num_workers": 2, "batch_size": 64, "compile": True},
        {"num_workers": 2, "pin_memory": True},
        {"num_workers": 2, "fused_optimizer": True},
        {"num_workers": 2, "persistent_workers": False, "prefetch_factor": 4},
        {"num_workers": -1, "batch_size": 64},
        {"num_workers": 2, "batch_size": 1},
    ],
    ids=str,
)
def test_where_one_has_no_forecast_the_whole_has_none(settings: Settings) -> None:
    assert forecast(SLEEPING.vitals(), settings) is None


def test_the_order_of_settings_and_those_that_it_had_change_nothing() -> None:
    vitals = SLEEPING.vitals()
    one = forecast(vitals, {"num_workers": 4, "batch_size": 64})
    assert one == forecast(vitals, {"batch_size": 64, "num_workers": 4})
    assert forecast(vitals, {"batch_size": 32, "num_workers": 4}) == forecast(vitals, {"num_workers": 4})


def test_a_trial_of_several_settings_stands_beside_the_same_forecast() -> None:
    world = WORLDS["an optimizer"]
    both: Settings = {"num_workers": 2, "fused_optimizer": True}
    base, candidate = (recorded(world, one, 240, np.random.default_rng(2)) for one in ({}, both))
    case = gpu_doctor.case("pass")
    case.recordings.append(base)
    entry = race.entered(case, both)
    assert not entry.refusal
    entry.bases.append(base)
    entry.candidates.append(candidate)
    effect, found = race.concluded(case, entry, {}), told(measure(base), both)
    ends = effect.predicted_speedup, effect.predicted_low, effect.predicted_high
    assert ends == (found.speedup, found.low, found.high)
    assert effect.speedup is not None and found.low <= effect.speedup <= found.high
