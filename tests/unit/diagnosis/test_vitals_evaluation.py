"""Vitals of evaluation passes: what their begin takes of the run, and how many there were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Fetch, LoaderSetup, Recording
from gpu_doctor.recording.setup import EvaluationFacts
from tests.support.recordings import Loop

VAL = "Images[1000] batch 32 SequentialSampler #0"


def evaluated(edge_s: float, batches: int | None = 10, fetched: int = 50) -> Recording:
    """100 steps with 5 ms of evaluation each, from a loader of so many batches."""
    recording = Loop(evaluation=5.0).recording()
    loader = LoaderSetup(VAL, role="evaluation", num_workers=2, batches=batches)
    fetch = Fetch(VAL, 2, fetched, fetched * 3e-3, fetched * 2e-3, 0.0, 1e5, np.empty(0))
    setup = replace(
        recording.setup, loaders=(*recording.setup.loaders, loader), evaluation=EvaluationFacts(edge_s=edge_s)
    )
    return replace(recording, setup=setup, fetches=(*recording.fetches, fetch))


def test_the_begin_of_the_passes_is_a_share_of_the_run() -> None:
    vitals = measure(evaluated(0.2))
    assert vitals.evaluation_edge_share == pytest.approx(0.2 / (102 * 0.015), rel=1e-6)  # the first step is three
    assert vitals.evaluation_passes == 5
    assert vitals.evaluation_fetch_s == pytest.approx(3e-3)


def test_it_is_never_more_than_the_evaluation() -> None:
    vitals = measure(evaluated(100.0))
    assert vitals.evaluation_edge_share == pytest.approx(vitals.evaluation_share)


def test_not_measured_is_none_and_not_zero() -> None:
    for recording in (evaluated(float("nan")), evaluated(0.2, fetched=0), Loop(evaluation=5.0).recording()):
        vitals = measure(recording)
        assert vitals.evaluation_edge_share is None and vitals.evaluation_passes is None


@pytest.mark.parametrize("batches", [10, None])
def test_passes_that_were_counted_are_believed(batches: int | None) -> None:
    recording = evaluated(0.2, batches)
    mine, other = recording.fetches
    counted = replace(other, delivered=70, passes=12)  # left early, and not all fetches metered
    assert measure(replace(recording, fetches=(mine, counted))).evaluation_passes == 12


def test_passes_over_a_stream_are_told_by_the_steps_they_follow() -> None:
    recording = evaluated(0.2, batches=None)
    sometimes = np.where(np.arange(100) % 25 == 24, 0.1, 0.0)
    assert measure(replace(recording, steps=replace(recording.steps, evaluation_s=sometimes))).evaluation_passes == 4
