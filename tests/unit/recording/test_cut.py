"""A recording as it stood at a moment of its run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Losses, Recording, Replay
from gpu_doctor.recording.cut import until
from gpu_doctor.recording.setup import Chore, Compilation, Traffic
from tests.support.recordings import starved


def whole() -> Recording:
    """100 steps of 40 ms with something in every field that has a time or is a sum."""
    run = starved(steps=100, outcome="failed", reason="ValueError: no", notes=("a note",), overhead_s=0.4, looks=50)
    compiled = (Compilation("f", at_s=0.5), Compilation("g", at_s=3.0))
    return replace(
        run,
        setup=replace(run.setup, compilations=compiled),
        losses=Losses(np.arange(3.0), np.arange(3.0), np.ones(3)),
        chores=(Chore("checkpoint", 4, 1.0, 100.0),),
        traffic=Traffic(to_device=10, to_device_bytes=1000.0),
        peak_bytes=1e9,
    )


def test_what_has_a_time_ends_there() -> None:
    run = until(whole(), 1.02)
    assert len(run.steps) == 25 and run.duration_s == 1.02
    assert all(one.times_s.max() <= 1.02 for one in run.series)
    assert [one.function for one in run.setup.compilations or ()] == ["f"]


def test_sums_of_the_run_stand_in_proportion_and_means_stay() -> None:
    run, was = until(whole(), 1.0), whole()
    [fetch], [fetch_was] = run.fetches, was.fetches
    assert fetch.batches == 25 and fetch.wall_s / fetch.batches == pytest.approx(fetch_was.wall_s / fetch_was.batches)
    assert run.chores is not None
    assert [(one.calls, one.wall_s, one.nbytes) for one in run.chores] == [(1, 0.25, 25.0)]
    assert run.traffic == Traffic(to_device=3, to_device_bytes=250.0)
    assert (run.overhead_s, run.looks) == (pytest.approx(0.1), 13)


def test_what_only_the_end_knows_is_not_known_yet() -> None:
    run = until(whole(), 3.99)
    assert (run.outcome, run.reason, run.notes, len(run.losses.step)) == ("completed", "", (), 0)
    assert np.isnan(run.peak_bytes)


def test_at_the_end_it_is_the_recording_itself() -> None:
    run = whole()
    assert until(run, 4.0) is run and Replay(run).so_far() is run
    empty = replace(run, duration_s=0.0)
    assert until(empty, 0.0) is empty


@pytest.mark.parametrize("moment_s", [-1.0, 0.0, 0.01, 0.5, 1.7, 3.9])
def test_every_moment_can_be_judged(moment_s: float) -> None:
    found = diagnose(Replay(whole(), moment_s).so_far())
    assert found.vitals.steps == len(until(whole(), moment_s).steps)
    assert all(0.0 <= (one.cost_share or 0.0) <= 1.0 for one in found.findings)
