"""Copies out of pinned memory, by the device's own clock: what of a gap they took, on whatever stream."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.recording import Steps
from tests.support.iterators import iterator
from tests.support.simulated_device import Noted, SimulatedDevice


class Played(Noted):
    """Steps of 2 ms on the device, with copies before them that the host does not wait for."""

    def __init__(self) -> None:
        self.device, self.source = SimulatedDevice(exact=True), iterator()
        self.begun = self.whole = 0
        """Marks before the loop's first event, which are none of a step, and at the end of the newest step."""
        super().__init__(self.device.recorder(), self.device)

    def fetch(self, ms: float = 0.0) -> None:
        """A step begins: its batch comes so late."""
        self.ask(self.source)
        self.begun = self.begun or len(self.device.marks)
        self.device.host(ms)
        self.batch()

    def copy(self, ms: float) -> None:
        """A pinned one."""
        self.copying()
        self.device.copy(ms, False)
        self.copied(1000, False)

    def hold(self, ms: float) -> None:
        """One that the host waits for."""
        self.copying()
        self.device.copy(ms, True)
        self.copied(1000, True)

    def work(self, ms: float = 2.0, key: int = 1) -> None:
        """The model's, and its optimizer's step."""
        self.forward()
        self.device.launch(ms)
        self.called()
        self.step(key)
        self.stepped(key)

    def finish(self) -> None:
        """The host waits for its stream."""
        self.device.now = max(self.device.now, self.device.idle_from)
        self.whole = len(self.device.marks)

    def steps(self) -> Steps:
        """The rows after the first, which has no gap; no mark is left behind."""
        self.exhaust(self.source)
        self.device.synchronize()
        steps = self.close().steps
        marks = self.recorder.marks
        assert marks is not None and not marks._pending
        assert all(mark.freed for mark in self.device.marks[self.begun : self.whole])
        return steps.rows(1)


def test_copies_apart_from_each_other_are_told_from_the_wait_between_them() -> None:
    played = Played()
    for _ in range(5):
        played.fetch(3)
        played.copy(1)
        played.fetch(6)  # another batch of the step: the copy has been over for 5
        played.copy(2)
        played.copy(1)
        played.work()
        played.finish()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.012)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.004)
    np.testing.assert_allclose(steps.exposed_wait_s, 0.008)


def test_copies_in_many_pieces_are_all_told_with_two_marks_each() -> None:
    played = Played()
    for _ in range(3):
        played.fetch()
        for _ in range(24):
            played.device.host(1)
            played.copy(1)
        played.work()
        played.finish()
    marks = len(played.device.marks)
    steps = played.steps()
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.024, atol=1e-4)
    assert marks == 3 * (2 * 24 + len(("ask", "batch", "forward", "called", "step", "stepped")))


@pytest.mark.parametrize(("copy_ms", "after_ms"), [(4.0, 0.0), (7.0, 1.0), (9.0, 3.0)])
def test_a_copy_on_a_stream_of_its_own_counts_where_nothing_else_is_waited_for(copy_ms: float, after_ms: float) -> None:
    """A prefetcher's, for this step, while the next batch is waited for 6 ms: then the step waits for it."""
    played = Played()
    for _ in range(4):
        played.device.stream = 1
        played.copy(copy_ms)
        played.device.stream = 0
        played.fetch(6)
        played.device.wait_stream(1)
        played.work()
        played.finish()
    steps = played.steps().rows(1)  # of the first copy, which was made before the loop, nothing is known
    np.testing.assert_allclose(steps.gpu_gap_s, (6.0 + after_ms) * 1e-3)
    np.testing.assert_allclose(steps.exposed_transfer_s, after_ms * 1e-3, atol=1e-12)
    np.testing.assert_allclose(steps.exposed_wait_s, 0.006)
    np.testing.assert_allclose(steps.gpu_s, 0.002, atol=1e-12)


def test_a_copy_that_raises_is_none_and_one_behind_the_forward_keeps_the_device_waiting() -> None:
    played = Played()
    for _ in range(5):
        played.fetch()
        played.copying()  # out of memory
        played.device.host(1)
        played.copy(1)
        played.copying()
        played.forward()
        played.called()
        played.copy(3)
        played.work()
        played.finish()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.005)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.004)
    np.testing.assert_allclose(steps.gpu_s, 0.002)


def test_an_evaluation_after_the_copies_begins_the_gap_anew() -> None:
    played = Played()
    for _ in range(5):
        played.fetch()
        played.copy(2)
        played.work()
        played.finish()
        played.copy(1)
        played.forward(training=False, grad=False)
        played.device.launch(5)
        played.called()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.002)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.002)
    np.testing.assert_allclose(steps.gpu_s, 0.002)


def test_copies_between_two_optimizers_keep_the_device_from_its_work() -> None:
    played = Played()
    for _ in range(5):
        played.fetch()
        played.copy(1)
        played.work(1, key=1)
        played.copy(4)
        played.work(2, key=2)
        played.finish()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_gap_s, 0.005)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.005)
    np.testing.assert_allclose(steps.gpu_s, 0.003)


def test_a_copy_inside_of_a_step_that_the_host_waits_for_is_no_work_of_the_device() -> None:
    played = Played()
    for _ in range(5):
        played.fetch(1)
        played.forward()
        played.device.launch(4)
        played.called()
        played.hold(3)  # such as the targets, moved where the loss needs them: behind 4 ms of work
        played.device.launch(2)
        played.step()
        played.device.launch(1)
        played.stepped()
        played.finish()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_s, 0.007)
    np.testing.assert_allclose(steps.gpu_gap_s, 0.001 + 0.003)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.003)
    np.testing.assert_allclose(steps.exposed_wait_s, 0.001)


def test_copies_that_the_host_waits_for_before_the_step_are_told_by_the_host_as_ever() -> None:
    played = Played()
    for _ in range(5):
        played.fetch(1)
        played.hold(3)
        played.work()
        played.finish()
    steps = played.steps()
    np.testing.assert_allclose(steps.gpu_s, 0.002)
    np.testing.assert_allclose(steps.gpu_gap_s, 0.004)
    np.testing.assert_allclose(steps.exposed_transfer_s, 0.003)
