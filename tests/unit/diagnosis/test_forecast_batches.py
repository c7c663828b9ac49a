"""Another batch size from one that was seen, where launches bind the step. GPU: recordings, none run."""

from __future__ import annotations

import pytest

import gpu_doctor
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.recording import Settings
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect
from tests.support.recordings import Loop, on_gpu

LAUNCHES = on_gpu(caught_up=1.0, gpu_util=20.0, gpu_gap=0.05)
"""A step of 10 ms that the GPU has done as soon as it is launched."""


def told(loop: Loop, size: int) -> Forecast:
    found = forecast(loop.vitals(), {"batch_size": size})
    assert found is not None
    assert found.low <= found.speedup <= found.high
    return found


def test_launches_take_as_long_for_a_larger_batch() -> None:
    assert told(LAUNCHES, 128).speedup == pytest.approx(2.0, rel=0.01), "between nothing, and 4 x the samples a launch"
    assert told(LAUNCHES, 128).low < 1.0 < 4.0 < told(LAUNCHES, 128).high
    assert "10.0 ms of launches" in told(LAUNCHES, 128).why


def test_what_nvml_reads_is_no_part_of_it() -> None:
    assert told(LAUNCHES.but(gpu_util=99.0), 128) == told(LAUNCHES, 128) == told(LAUNCHES.but(gpu_util=None), 128)


def test_copies_grow_with_the_batch() -> None:
    copying = LAUNCHES.but(transfer=2.0, gpu_gap=2.05, pageable=2.0)
    assert told(copying, 64).speedup < told(LAUNCHES, 64).speedup


def test_a_batch_that_may_not_fit_says_so() -> None:
    assert "may not fit" in told(LAUNCHES, 128).why
    assert "may not fit" not in told(LAUNCHES.but(peak_share=0.05), 128).why


def test_where_something_else_binds_nothing_is_known() -> None:
    for loop in (on_gpu(), LAUNCHES.but(caught_up=0.2)):
        assert forecast(loop.vitals(), {"batch_size": 128}) is None
    assert forecast(LAUNCHES.vitals(), {"batch_size": 8}) is None, "a smaller one: kernels may bind or not"


def test_the_rule_says_it() -> None:
    found = next(one for one in diagnose(LAUNCHES.recording()).findings if one.rule == "small-batch")
    cure = found.prescriptions[0]
    assert cure.predicted_low and cure.predicted_speedup and cure.predicted_high
    assert cure.predicted_low < cure.predicted_speedup == pytest.approx(2.0, rel=0.01)


BUSY = on_gpu(caught_up=0.0, gpu_util=60.0)
"""A step of 10 ms at 32 samples, bound by nothing that one recording could tell."""


def sized(batch: int) -> Loop:
    """The loop with another batch: 6 ms a step and 0.125 ms a sample."""
    work = 6.0 + 0.125 * batch
    parts = {"forward": 0.4 * work, "backward": 0.4 * work, "optimizer": 0.2 * work, "gpu_work": work - 0.05}
    settings = {} if batch == 32 else {"batch_size": batch}
    return BUSY.but(batch=batch, settings=settings, **parts)


def tried(case: gpu_doctor.Case, batch: int) -> Effect:
    """A trial of a batch size against the code as written, had it run."""
    entry = race.entered(case, {"batch_size": batch})
    assert not entry.refusal
    entry.bases.append(sized(32).recording())
    entry.candidates.append(sized(batch).recording())
    return race.concluded(case, entry, {})


def test_a_trial_of_a_batch_size_teaches_the_next_forecast() -> None:
    case = gpu_doctor.case("pass")
    case.recordings.append(sized(32).recording())
    assert tried(case, 64).predicted_speedup is None, (
        "one size alone tells nothing, nor may a trial know its own outcome"
    )
    second = tried(case, 128)
    assert second.predicted_speedup == pytest.approx((128 / 22) / (32 / 10), rel=0.02)
    assert second.speedup == pytest.approx(second.predicted_speedup, rel=0.05)


def test_candidates_of_one_race_do_not_tell_of_each_other() -> None:
    case = gpu_doctor.case("pass")
    case.recordings.append(sized(32).recording())
    entries = [race.entered(case, {"batch_size": size}) for size in (64, 128)]
    for entry in entries:
        entry.bases.append(sized(32).recording())
        entry.candidates.append(sized(int(entry.settings["batch_size"])).recording())
    effects = [race.concluded(case, entry, {}) for entry in entries]
    assert [one.predicted_speedup for one in effects] == [None, None]


@pytest.mark.parametrize("settings", [{"batch_size": 320}, {"batch_size": 320, "num_workers": 2}], ids=str)
def test_the_size_next_to_what_is_asked_for_tells_most(settings: Settings) -> None:
    # From 256 on the step grows twice as fast: the smaller size seen knows nothing of that.
    bent = sized(256).but(forward=26.0, gpu_work=53.0)
    found = forecast(sized(32).vitals(), settings, (sized(64).vitals(), bent.vitals()))
    alone = forecast(sized(32).vitals(), settings, (bent.vitals(),))
    assert found is not None and found == alone
