"""What the device's clock tells of a loop, proved on a device whose every moment is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_device import Loop, Plain, SimulatedDevice

from gpu_doctor.devicemarks import StepMarks
from gpu_doctor.recording import STEP_COLUMNS, Recording
from gpu_doctor.steptable import StepTable
from gpu_doctor.vitals import measure


def gap_share(recording: Recording) -> float:
    """Device-clock gaps over device-clock time, of the steps that were read, without the first few."""
    steps = recording.steps.rows(5)
    gap, busy = np.nansum(steps.gpu_gap_s), np.nansum(steps.gpu_s)
    return float(gap / (gap + busy))


def test_a_wait_hidden_behind_a_deep_queue_is_not_exposed() -> None:
    device, recording = Loop(wait=4, kernel=1.0, kernels=10).play()
    steps = recording.steps
    assert steps.data_wait_s.sum() == pytest.approx(0.16)  # the host waits 4 of every 10 ms
    assert gap_share(recording) == pytest.approx(0, abs=0.005)
    assert np.nansum(steps.queue_empty) <= 1
    vitals = measure(recording)
    assert vitals.exposed_wait_share is not None
    assert vitals.exposed_wait_share < 0.01
    assert np.nansum(steps.gpu_s) * 1e9 == pytest.approx(device.busy, rel=0.05)


def test_starvation_is_exposed() -> None:
    _, recording = Loop(wait=15, kernel=0.5, kernels=10).play()
    # 5 ms of work every 15.1 ms, and the launches of a step overlap its own kernels.
    assert gap_share(recording) == pytest.approx(10.1 / 15.1, abs=0.02)
    vitals = measure(recording)
    assert vitals.exposed_wait_share == pytest.approx(10.1 / 15.1, abs=0.03)
    assert vitals.data_wait_share == pytest.approx(15 / 15.1, abs=0.01)


def test_a_launch_bound_loop_has_an_empty_queue() -> None:
    _, recording = Loop(wait=0.1, kernel=0.01, kernels=100, launch_cost=0.05).play()
    steps = recording.steps.rows(5)
    assert np.nansum(steps.queue_empty) / steps.device_steps.sum() > 0.9
    vitals = measure(recording)
    assert vitals.exposed_wait_share == pytest.approx(0.02, abs=0.01)
    assert vitals.sync_share == 0


def test_a_compute_bound_loop_never_has_one() -> None:
    _, recording = Loop(wait=0.1, kernel=1.0, kernels=20).play()
    steps = recording.steps.rows(5)
    assert np.nansum(steps.queue_empty) == 0
    assert gap_share(recording) < 0.01


def test_an_item_per_step_shows_as_sync_and_hides_nothing_any_more() -> None:
    _, without = Loop(wait=4, kernel=1.0, kernels=10).play()
    _, recording = Loop(wait=4, kernel=1.0, kernels=10, item_every=1).play()
    steps = recording.steps
    assert steps.sync_s.sum() == pytest.approx(0.4 * 0.99, rel=0.02)  # nearly all of the device's work is waited for
    assert gap_share(recording) == pytest.approx(4 / 14, abs=0.02)
    assert measure(recording).sync_share == pytest.approx(10 / 14, abs=0.03)
    assert steps.sync_s.sum() > 0.3
    assert steps.syncs.tolist() == [1.0] * 40
    assert measure(recording).syncs_per_step == 1.0
    assert measure(without).syncs_per_step == 0.0
    assert without.steps.sync_s.sum() == 0


def test_an_item_now_and_then_costs_what_was_queued_then() -> None:
    _, recording = Loop(wait=1, kernel=1.0, kernels=10, item_every=10).play()
    steps = recording.steps
    assert (steps.sync_s > 0).sum() == 4
    np.testing.assert_array_equal(steps.syncs, steps.sync_s > 0)
    assert gap_share(recording) < 0.1


def test_copies_that_block_are_transfer_and_pinned_ones_overlap() -> None:
    _, blocking = Loop(wait=0.1, copy=2, kernel=0.3, kernels=10).play()
    _, pinned = Loop(wait=0.1, copy=2, kernel=0.3, kernels=10, copy_blocks=False).play()
    assert blocking.steps.transfer_s.sum() > 0.07  # each waits for the queue as well
    assert pinned.steps.transfer_s.sum() == 0
    assert blocking.steps.pageable.sum() == 40
    assert pinned.steps.pageable.sum() == 0
    assert pinned.steps.wall_s.sum() < blocking.steps.wall_s.sum()


@pytest.mark.parametrize("loop", [Loop(), Loop(wait=20), Loop(kernel=3.0), Loop(item_every=1), Loop(copy=1.0)])
def test_host_and_device_account_for_all_of_their_time(loop: Loop) -> None:
    device, recording = loop.play()
    steps = recording.steps
    parts = steps.data_wait_s + steps.transfer_s + steps.forward_s + steps.backward_s + steps.optimizer_s + steps.sync_s
    np.testing.assert_allclose(parts + loop.python * 1e-3, steps.wall_s, atol=1e-9)
    read = steps.where(steps.device_steps > 0)
    assert len(read) == loop.steps - 1
    device_s = np.nansum(read.gpu_s) + np.nansum(read.gpu_gap_s)
    ended = device.marks[2]  # the first step's: after its first work and, as no optimizer is known yet, its forward
    assert device_s == pytest.approx((device.idle_from - ended.passed_ns) * 1e-9, rel=1e-6)


def test_readings_are_never_waited_for() -> None:
    device = SimulatedDevice()
    table = StepTable()
    marks = StepMarks(device, table)
    for _ in range(20):
        marks.work()
        device.launch(100)
        marks.stepped()
        marks.close(table.append([0.0] * len(STEP_COLUMNS)))
    assert device.now == 0
    assert table.steps().device_steps.sum() == 0  # the device has passed none of them
    device.synchronize()
    marks.read()
    assert table.steps().device_steps.sum() == 19


def test_marks_are_given_back_once_and_never_read_again() -> None:
    device = SimulatedDevice()
    table = StepTable()
    marks = StepMarks(device, table)
    for i in range(200):
        if i % 3:
            marks.work()
            device.launch(2)
            marks.work()
        if i % 5:
            marks.stepped()
            marks.stepped()
        if i % 7 == 0:
            device.host(20)
        marks.close(table.append([0.0] * len(STEP_COLUMNS)))  # steps with both, one or none of their marks
    device.synchronize()
    marks.read()
    assert device.unfreed <= 2
    assert table.steps().device_steps.sum() == 40


def test_a_step_after_one_that_was_not_marked_has_no_gap() -> None:
    device = SimulatedDevice()
    table = StepTable()
    marks = StepMarks(device, table)
    for launched in (True, True, False, True, True):
        if launched:
            marks.work()
            device.launch(1)
            marks.stepped()
        device.host(5)
        marks.close(table.append([0.0] * len(STEP_COLUMNS)))
    assert table.steps().device_steps.tolist() == [0, 1, 0, 0, 1]


WAYS = ("no_grad", "careless", "held", "careless held")


@pytest.mark.parametrize("way", WAYS)
def test_an_evaluation_on_a_busy_device_is_no_gap(way: str) -> None:
    """Every five steps it evaluates for 25 ms, a third of its time; it is idle only while a batch comes after that."""
    loop = Loop(wait=0.1, kernel=1.0, evaluate_every=5, evaluation_kernel=0.5, evaluates=way, most_queued_ms=20.0)
    device, recording = loop.play()
    assert device.busy == pytest.approx(device.now, rel=0.02)
    assert recording.steps.evaluation_s.sum() > 0.2 * recording.steps.wall_s.sum()
    assert recording.steps.device_steps.sum() == 39
    assert gap_share(recording) < 0.01
    vitals = measure(recording)
    assert vitals.gpu_gap_share is not None and vitals.exposed_wait_share is not None
    assert vitals.gpu_gap_share < 0.01
    assert vitals.exposed_wait_share < 0.01


@pytest.mark.parametrize("way", WAYS)
def test_starvation_between_evaluations_is_what_it_is_without_them(way: str) -> None:
    starved = Loop(wait=15, kernel=0.5)
    evaluating = replace(starved, evaluate_every=5, evaluates=way)
    plain, found = starved.play()[1].steps.rows(1), evaluating.play()[1].steps.rows(1)
    np.testing.assert_allclose(found.gpu_s, plain.gpu_s, atol=2e-5)
    # Elsewhere 5 ms of the wait for the batch are hidden behind the step before, but the metric has been waited for.
    after = np.arange(1, 40) % 5 == 0
    np.testing.assert_allclose(found.gpu_gap_s[~after], plain.gpu_gap_s[~after], atol=2e-5)
    np.testing.assert_allclose(found.gpu_gap_s[after], 0.015, atol=1e-4)


def test_marks_of_evaluations_are_given_back() -> None:
    for way in WAYS:
        device, recording = Loop(evaluate_every=3, evaluates=way).play()
        assert device.unfreed <= 3
        assert recording.steps.device_steps.sum() == 39


HOW = ("inference", "own", "functional", "cleared", "uncleared")


@pytest.mark.parametrize("how", HOW)
def test_starvation_shows_without_an_optimizer(how: str) -> None:
    _, recording = Plain(how=how, wait=15, kernel=0.5, steps=120).play()
    steps = recording.steps
    assert steps.count.sum() == 120
    # What is held back at the begin, until it is clear that these are steps of their own, is not read.
    assert steps.device_steps.sum() >= 120 - 66
    assert gap_share(recording) == pytest.approx(10.1 / 15.1, abs=0.02)
    vitals = measure(recording)
    assert vitals.gpu_gap_share == pytest.approx(10.1 / 15.1, abs=0.02)
    if how in ("inference", "own", "functional"):
        assert vitals.exposed_wait_share == pytest.approx(10.1 / 15.1, abs=0.03)


@pytest.mark.parametrize("how", HOW)
def test_a_busy_device_has_no_gap_without_an_optimizer(how: str) -> None:
    _, recording = Plain(how=how, wait=4, kernel=1.0, steps=120, most_queued_ms=20.0).play()
    assert recording.steps.device_steps.sum() >= 120 - 66
    assert gap_share(recording) < 0.01
    assert np.nansum(recording.steps.rows(70, 119).queue_empty) == 0  # the last may end with the run, after its work
    vitals = measure(recording)
    assert vitals.exposed_wait_share is not None and vitals.exposed_wait_share < 0.01


@pytest.mark.parametrize("how", HOW)
def test_a_launch_bound_loop_has_an_empty_queue_without_an_optimizer(how: str) -> None:
    _, recording = Plain(how=how, wait=0.1, kernel=0.01, kernels=100, launch_cost=0.05, steps=120).play()
    steps = recording.steps.rows(5)
    assert np.nansum(steps.queue_empty) / steps.device_steps.sum() > 0.9


def test_what_is_read_of_each_batch_is_no_gap_of_the_loader() -> None:
    device, recording = Plain(wait=5, kernel=1.0, reads=True).play()
    assert gap_share(recording) == pytest.approx(5 / 15, abs=0.01)
    assert measure(recording).exposed_wait_share == pytest.approx(5 / 15, abs=0.01)
    assert device.unfreed <= 3
