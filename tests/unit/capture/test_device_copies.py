"""Copies out of pinned memory, by the device's own clock: what of a gap they took, on whatever stream."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.capture.gpu.devicecopies import MOST_STRETCHES
from gpu_doctor.capture.gpu.devicemarks import StepMarks
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording import Steps
from gpu_doctor.recording.steps import STEP_COLUMNS
from tests.support.simulated_device import SimulatedDevice


class Played:
    """Steps of 2 ms on the device, with copies before them that the host does not wait for."""

    def __init__(self) -> None:
        self.device, self.table = SimulatedDevice(), StepTable()
        self.marks = StepMarks(self.device, self.table, host=lambda: self.device.now)

    def copy(self, ms: float) -> None:
        """A pinned one."""
        self.marks.copying()
        self.device.launch(ms)
        self.marks.copied()

    def step(self, waited_ms: float = 0.0) -> None:
        """The rest of the step; the host then waits for its stream."""
        self.marks.work(round(waited_ms * 1e6))
        self.device.launch(2)
        self.marks.stepped()
        self.device.now = max(self.device.now, self.device.idle_from)
        self.marks.close(self.table.append([np.nan] * len(STEP_COLUMNS)))

    def steps(self) -> Steps:
        """The rows after the first, which has no gap; no mark is left behind."""
        self.device.synchronize()
        self.marks.read()
        self.marks.rest()
        self.marks.read()
        assert not self.marks.pending and self.device.unfreed == 0
        return self.table.steps().rows(1)


def test_copies_apart_from_each_other_are_told_from_the_wait_between_them() -> None:
    played = Played()
    for _ in range(5):
        played.device.host(3)
        played.copy(1)
        played.device.host(6)  # the copy has been over for 5
        played.copy(2)
        played.copy(1)
        played.step(waited_ms=9)
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.012)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.004)
    np.testing.assert_allclose(steps.exposed_wait_s, 0.008)


def test_copies_in_many_pieces_are_bounded() -> None:
    played = Played()
    for _ in range(3):
        for _ in range(3 * MOST_STRETCHES):
            played.device.host(1)
            played.copy(1)
        played.step()
    before = len(played.device.marks)
    steps = played.steps()
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.024, atol=1e-4)
    assert before < 3 * (5 * MOST_STRETCHES)


@pytest.mark.parametrize(("copy_ms", "within_ms"), [(4.0, 4.0), (7.0, 6.0), (9.0, 5.0)])
def test_a_copy_on_a_stream_of_its_own_counts_where_it_lies_in_the_gap(copy_ms: float, within_ms: float) -> None:
    """A prefetcher's, for a later step, while the loader is waited for 6 ms of 8.

    It may go on beyond the gap, also beyond the step's end: the one of 9 ms begins 1 ms late in the second step.
    """
    played = Played()
    for _ in range(2):
        played.device.stream = 1
        played.copy(copy_ms)
        played.device.stream = 0
        played.device.host(6)
        played.step(waited_ms=6)
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.006)
    np.testing.assert_allclose(steps.exposed_transfer_s, within_ms * 1e-3)
    np.testing.assert_allclose(steps.exposed_wait_s, (6.0 - within_ms) * 1e-3, atol=1e-12)


def test_a_copy_that_raises_and_copies_inside_a_step_are_none_of_the_gap() -> None:
    played = Played()
    for _ in range(5):
        played.marks.copying()  # out of memory
        played.device.host(1)
        played.copy(1)
        played.marks.copying()
        played.marks.work()
        played.copy(3)
        played.step()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.002)
    np.testing.assert_allclose(steps.gpu_s, 0.005)


def test_an_evaluation_after_the_copies_begins_the_gap_anew() -> None:
    played = Played()
    for _ in range(5):
        played.copy(1)
        played.device.launch(5)
        played.marks.evaluated()
        played.copy(2)
        played.step()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.002)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.002)


def test_copies_between_two_optimizers_are_within_the_step() -> None:
    played = Played()
    for _ in range(5):
        played.copy(1)
        played.marks.work()
        played.device.launch(1)
        played.marks.stepped()
        played.copy(4)
        played.step()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.001)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.001)
    np.testing.assert_allclose(steps.gpu_s, 0.007)
