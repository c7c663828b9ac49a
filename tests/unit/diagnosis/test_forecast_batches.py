"""What a trial of one batch size teaches the forecast of the next. GPU: recordings, none run."""

from __future__ import annotations

import pytest

import gpu_doctor
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect
from tests.support.recordings import Loop, on_gpu

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
