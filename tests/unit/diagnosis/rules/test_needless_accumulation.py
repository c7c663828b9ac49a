"""needless-accumulation: micro-batches though the card is half empty and has time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpu_doctor.recording import Recording
from tests.support.found import asked, named, surely
from tests.support.recordings import Loop, on_gpu, zipped

RULE = "needless-accumulation"
IDLE = on_gpu(gpu_util=50.0, peak_share=0.2, caught_up=1.0)


def accumulating(loop: Loop, batches: int = 4) -> Recording:
    recording = loop.recording()
    steps = recording.steps
    return dataclasses.replace(recording, steps=dataclasses.replace(steps, batches=np.full(len(steps), float(batches))))


def test_sick() -> None:
    found = surely(RULE, accumulating(IDLE))
    assert found.kind == "at-most" and found.cost_share == pytest.approx(1.0, abs=0.02)
    assert "batch_size=128" in found.prescriptions[0].code and "accumulation_steps = 1" in found.prescriptions[0].code
    assert named(accumulating(IDLE)) == [RULE], "the small batch is the same symptom"


@pytest.mark.parametrize("workers", [4, 0])
def test_two_loaders_in_one_step_are_no_two_micro_batches(workers: int) -> None:
    assert asked(RULE, zipped(IDLE.recording(), workers)) is None
    accumulated = surely(RULE, zipped(accumulating(IDLE, 2), workers))
    assert accumulated.headline.startswith("2 micro-batches")


def test_only_what_surely_fits_is_advised() -> None:
    assert "accumulation_steps = 2" in surely(RULE, accumulating(IDLE.but(peak_share=0.4))).prescriptions[0].code
    assert asked(RULE, accumulating(IDLE.but(peak_share=0.4), batches=3)) is None


@pytest.mark.parametrize(
    "recording",
    [
        IDLE,
        accumulating(IDLE.but(peak_share=0.7)),
        accumulating(IDLE.but(caught_up=0.05)),  # the GPU is behind its host
        accumulating(IDLE.but(wait=5.0, gpu_gap=5.0)),  # it waits for data
    ],
)
def test_well(recording: Loop | Recording) -> None:
    assert asked(RULE, recording) is None
