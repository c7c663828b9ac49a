"""needless-accumulation: micro-batches though the card is half empty and has time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Recording
from tests.support.found import asked, named, surely
from tests.support.recordings import Loop, on_gpu, zipped

RULE = "needless-accumulation"
IDLE = on_gpu(gpu_util=50.0, peak_share=0.2, caught_up=0.6)


def accumulating(loop: Loop, batches: int = 4) -> Recording:
    recording = loop.recording()
    steps = recording.steps
    return dataclasses.replace(recording, steps=dataclasses.replace(steps, batches=np.full(len(steps), float(batches))))


def test_sick() -> None:
    found = surely(RULE, accumulating(IDLE))
    assert found.cost_share == pytest.approx(0.6 * 0.75, abs=0.02)
    assert "batch_size=128" in found.prescriptions[0].code and "accumulation_steps = 1" in found.prescriptions[0].code
    assert [one.rule for one in diagnose(accumulating(IDLE)).findings] == [RULE], "small-batch says the same"


def test_the_launches_of_a_small_micro_batch_are_no_finding_of_their_own() -> None:
    waits = IDLE.but(caught_up=1.0)
    assert "launch-bound" in named(waits)
    assert [one.rule for one in diagnose(accumulating(waits)).findings] == [RULE]


@pytest.mark.parametrize("workers", [4, 0])
def test_two_loaders_in_one_step_are_no_two_micro_batches(workers: int) -> None:
    assert asked(RULE, zipped(IDLE.recording(), workers)) is None
    accumulated = surely(RULE, zipped(accumulating(IDLE, 2), workers))
    assert accumulated.headline.startswith("2 micro-batches")


def test_only_what_surely_fits_is_advised() -> None:
    assert "accumulation_steps = 2" in surely(RULE, accumulating(IDLE.but(peak_share=0.4))).prescriptions[0].code
    assert asked(RULE, accumulating(IDLE.but(peak_share=0.4), batches=3)) is None


def test_well() -> None:
    assert RULE not in named(IDLE)
    assert asked(RULE, accumulating(IDLE.but(peak_share=0.7))) is None


def test_a_gpu_that_is_behind_its_host_gains_nothing() -> None:
    assert asked(RULE, accumulating(IDLE.but(gpu_util=97.0)))
    assert asked(RULE, accumulating(IDLE.but(caught_up=0.05))) is None


def test_a_loop_that_waits_for_data_gains_nothing() -> None:
    assert asked(RULE, accumulating(IDLE.but(wait=5.0, gpu_gap=5.0))) is None
