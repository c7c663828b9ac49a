"""What the device's clock tells of a loop, proved on a device whose every moment is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.capture.device_marks import MOST_MARKS
from gpu_doctor.capture.events import STEP, STEPPED
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.words import efficiency
from gpu_doctor.recording import Recording, Steps
from tests.support.iterators import iterator
from tests.support.simulated_device import Noted, SimulatedDevice
from tests.support.simulated_loops import Loop, Plain


def watched() -> tuple[SimulatedDevice, Noted]:
    """A device, and a loop on it whose steps are marked."""
    device = SimulatedDevice(exact=True)
    return device, Noted(device.recorder(), device)


def caught_up(steps: Steps) -> float:
    """Part of the device's time in steps during which it kept up with its host."""
    return float(np.nansum(steps.gpu_caught_up_s) / np.nansum(steps.gpu_s))


def gap_share(recording: Recording) -> float:
    """Device-clock gaps over device-clock time, of the steps that were read, without the first few."""
    steps = recording.steps.rows(5)
    gap, busy = np.nansum(steps.gpu_gap_s), np.nansum(steps.gpu_s)
    return float(gap / (gap + busy))


def test_a_wait_hidden_behind_a_deep_queue_is_not_exposed() -> None:
    device, recording = Loop(wait=4, kernel=1.0, kernels=10).play(SimulatedDevice(exact=True))
    steps = recording.steps
    assert steps.data_wait_s.sum() == pytest.approx(0.16)  # the host waits 4 of every 10 ms
    assert gap_share(recording) == pytest.approx(0, abs=0.005)
    assert caught_up(steps.rows(5)) == 0
    vitals = measure(recording)
    assert vitals.exposed_wait_share is not None
    assert vitals.exposed_wait_share < 0.01
    assert np.nansum(steps.gpu_s) * 1e9 == pytest.approx(device.busy, rel=0.05)


def test_an_item_per_step_shows_as_sync_and_hides_nothing_any_more() -> None:
    _, without = Loop(wait=4, kernel=1.0, kernels=10).play(SimulatedDevice(exact=True))
    _, recording = Loop(wait=4, kernel=1.0, kernels=10, item_every=1).play(SimulatedDevice(exact=True))
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
    _, recording = Loop(wait=1, kernel=1.0, kernels=10, item_every=10).play(SimulatedDevice(exact=True))
    steps = recording.steps
    assert (steps.sync_s > 0).sum() == 4
    np.testing.assert_array_equal(steps.syncs, steps.sync_s > 0)
    assert gap_share(recording) < 0.1


def test_a_copy_that_blocks_is_the_end_of_the_gap_and_the_wait_what_is_left_of_it() -> None:
    # The loader is 4 ms of 12 behind 10 ms of queued work, which only the copy waits for: nothing of the wait is seen.
    hidden = measure(Loop(wait=4, kernel=1.0, kernels=10, copy=2).play(SimulatedDevice(exact=True))[1])
    assert hidden.exposed_wait_share == pytest.approx(0.0, abs=0.01)
    assert hidden.exposed_transfer_share == pytest.approx(2 / 12, abs=0.01)
    # 12 ms of wait begin with 10 ms of work: 2 ms of it and the whole copy are idle time.
    seen = measure(Loop(wait=12, kernel=1.0, kernels=10, copy=4).play(SimulatedDevice(exact=True))[1])
    assert seen.exposed_wait_share == pytest.approx(2 / 16, abs=0.02)
    assert seen.exposed_transfer_share == pytest.approx(4 / 16, abs=0.02)


@pytest.mark.parametrize("loop", [Loop(), Loop(wait=20), Loop(kernel=3.0), Loop(item_every=1), Loop(copy=1.0)])
def test_host_and_device_account_for_all_of_their_time(loop: Loop) -> None:
    device, recording = loop.play(SimulatedDevice(exact=True))
    steps = recording.steps
    parts = steps.data_wait_s + steps.transfer_s + steps.forward_s + steps.backward_s + steps.optimizer_s + steps.sync_s
    np.testing.assert_allclose(parts + loop.python * 1e-3, steps.wall_s, atol=1e-9)
    read = steps.where(steps.device_steps > 0)
    assert len(read) == loop.steps - 1
    device_s = np.nansum(read.gpu_s) + np.nansum(read.gpu_gap_s)
    assert device_s == pytest.approx((device.ends[-1] - device.ends[0]) * 1e-9, rel=1e-6)


def test_readings_are_never_waited_for() -> None:
    device, loop = watched()
    source = iterator()
    for _ in range(20):
        loop.pull(source)
        loop.forward()
        device.launch(100)
        loop.called()
        loop.step()
        loop.stepped()
    loop.exhaust(source)
    loop.end()
    assert device.now == 0
    recorder = loop.recorder
    assert recorder.step_count == 20
    assert recorder.table.steps().device_steps.sum() == 0  # the device has passed none of them
    device.synchronize()
    assert recorder.marks is not None
    recorder.marks.read()
    assert recorder.table.steps().device_steps.sum() == 19


class Captured(SimulatedDevice):
    """A device of which a graph is captured now and then: it takes no marks then."""

    capturing = False

    def ready(self) -> bool:
        """See DeviceClock."""
        return not self.capturing


def test_marks_are_given_back_once_and_never_read_again() -> None:
    device = Captured(exact=True)
    loop, source = Noted(device.recorder(), device), iterator()
    for i in range(200):  # steps with both, one or none of their marks
        loop.pull(source)
        device.capturing = i % 3 == 0
        for _ in range(2):
            loop.forward()
            device.launch(2)
            loop.called()
        device.capturing = i % 5 == 0
        for key in (1, 2):
            loop.step(key)
            loop.stepped(key)
        device.capturing = False
        if i % 7 == 0:
            device.host(20)
    loop.exhaust(source)
    device.synchronize()
    steps = loop.close().steps
    assert len(device.marks) > 1000 and device.unfreed <= 3
    assert len(steps) == 200 and steps.device_steps.sum() == 40


WAYS = ("no_grad", "careless", "held", "careless held")


@pytest.mark.parametrize("way", WAYS)
def test_an_evaluation_on_a_busy_device_is_no_gap(way: str) -> None:
    """Every five steps it evaluates for 25 ms, a third of its time; it is idle only while a batch comes after that."""
    loop = Loop(wait=0.1, kernel=1.0, evaluate_every=5, evaluation_kernel=0.5, evaluates=way, most_queued_ms=20.0)
    device, recording = loop.play(SimulatedDevice(exact=True))
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
    plain, found = (
        starved.play(SimulatedDevice(exact=True))[1].steps.rows(1),
        evaluating.play(SimulatedDevice(exact=True))[1].steps.rows(1),
    )
    np.testing.assert_allclose(found.gpu_s, plain.gpu_s, atol=2e-5)
    # Elsewhere 5 ms of the wait for the batch are hidden behind the step before, but the metric has been waited for.
    after = np.arange(1, 40) % 5 == 0
    np.testing.assert_allclose(found.gpu_gap_s[~after], plain.gpu_gap_s[~after], atol=2e-5)
    np.testing.assert_allclose(found.gpu_gap_s[after], 0.015, atol=1e-4)


def test_marks_of_evaluations_are_given_back() -> None:
    for way in WAYS:
        device, recording = Loop(evaluate_every=3, evaluates=way).play(SimulatedDevice(exact=True))
        assert device.unfreed <= 3
        assert recording.steps.device_steps.sum() == 39


HOW = ("inference", "own", "functional", "cleared", "uncleared")


@pytest.mark.parametrize("how", HOW)
def test_starvation_shows_without_an_optimizer(how: str) -> None:
    _, recording = Plain(how=how, wait=15, kernel=0.5, steps=120).play(SimulatedDevice(exact=True))
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
    _, recording = Plain(how=how, wait=4, kernel=1.0, steps=120, most_queued_ms=20.0).play(SimulatedDevice(exact=True))
    assert recording.steps.device_steps.sum() >= 120 - 66
    assert gap_share(recording) < 0.01
    assert caught_up(recording.steps.rows(70, 119)) == 0
    vitals = measure(recording)
    assert vitals.exposed_wait_share is not None and vitals.exposed_wait_share < 0.01


@pytest.mark.parametrize("how", HOW)
def test_a_launch_bound_loop_has_an_empty_queue_without_an_optimizer(how: str) -> None:
    _, recording = Plain(how=how, wait=0.1, kernel=0.01, kernels=100, launch_cost=0.05, steps=120).play(
        SimulatedDevice(exact=True)
    )
    steps = recording.steps.rows(5)
    assert caught_up(steps) > 0.9


def test_what_is_read_of_each_batch_is_no_gap_of_the_loader() -> None:
    device, recording = Plain(wait=5, kernel=1.0, reads=True).play(SimulatedDevice(exact=True))
    assert gap_share(recording) == pytest.approx(5 / 15, abs=0.01)
    assert measure(recording).exposed_wait_share == pytest.approx(5 / 15, abs=0.01)
    assert device.unfreed <= 3


def test_the_devices_work_is_told_apart_by_the_phase_that_launched_it() -> None:
    loop = Loop(wait=0.1, kernels=10, kernel=1.0, loss=0.5, update=2.0)  # the queue is never empty
    device, recording = loop.play(SimulatedDevice(exact=True))
    read = recording.steps.rows(1)
    seconds = {phase: 1e-9 * device.of_phase[phase] * 39 / 40 for phase in ("forward", "backward", "optimizer")}
    assert read.gpu_forward_s.sum() == pytest.approx(seconds["forward"], rel=0.01)
    assert read.gpu_backward_s.sum() == pytest.approx(seconds["backward"], rel=0.01)
    assert read.gpu_optimizer_s.sum() == pytest.approx(seconds["optimizer"], rel=0.01)
    vitals = measure(recording)
    assert vitals.gpu_forward_share == vitals.gpu_backward_share == pytest.approx(5 / 12.5, abs=0.01)
    assert vitals.gpu_optimizer_share == pytest.approx(2 / 12.5, abs=0.01)
    assert vitals.gpu_busy_share == pytest.approx(1, abs=0.01)
    assert efficiency(vitals) == ["GPU time: 40 % forward, 40 % backward, 16 % optimizer"]


def test_a_phase_of_a_launch_bound_step_holds_the_devices_waits_for_its_launches() -> None:
    _, recording = Loop(wait=0.1, kernel=0.01, kernels=100, launch_cost=0.05, update=0.01).play(
        SimulatedDevice(exact=True)
    )
    vitals = measure(recording)
    assert vitals.gpu_forward_share == pytest.approx(0.5, abs=0.03)
    assert vitals.gpu_backward_share == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("pulled", [True, False])
def test_two_optimizers_and_several_forwards_of_one_step_are_all_told_apart(pulled: bool) -> None:
    device, loop = watched()
    source = iterator()
    for _ in range(20):
        if pulled:
            loop.pull(source)
        for key in (1, 2):  # a GAN: discriminator, then generator
            loop.forward()
            device.launch(1)
            loop.called()
            loop.backward()
            device.launch(2)
            loop.backed()
            device.launch(0.25)
            loop.step(key)
            device.launch(0.5)
            loop.stepped(key)
    if pulled:
        loop.exhaust(source)
    device.synchronize()
    steps = loop.close().steps
    assert steps.device_steps.sum() == 19
    assert np.nansum(steps.gpu_forward_s) == pytest.approx(19 * 2e-3)
    assert np.nansum(steps.gpu_backward_s) == pytest.approx(19 * 4e-3)
    assert np.nansum(steps.gpu_optimizer_s) == pytest.approx(19 * 1e-3)
    assert np.nansum(steps.gpu_s) == pytest.approx(19 * 7.5e-3)
    assert device.unfreed <= 3


def test_a_step_of_far_too_many_marks_is_not_read_and_the_next_ones_are() -> None:
    device, loop = watched()
    source = iterator()
    for i in range(8):
        loop.pull(source)
        for _ in range(MOST_MARKS if i == 3 else 4):
            loop.forward()
            device.launch(0.1)
            loop.called()
            device.host(0.2)
        loop.step()
        loop.stepped()
    loop.exhaust(source)
    device.synchronize()
    steps = loop.close().steps
    # With a step that is not read goes the begin of the next one; and so much marking ends the window.
    assert steps.device_steps[:5].tolist() == [0, 1, 1, 0, 0]
    assert device.unfreed <= 3


def test_waits_within_an_accumulation_are_exposed_as_well() -> None:
    device, loop = watched()
    source = iterator()
    for _ in range(30):
        for part in range(4):
            loop.ask(source)
            device.host(1)
            loop.batch()
            if not part:
                device.host(3)  # something else, such as an augmentation
            loop.forward()
            device.launch(2)
            loop.called()
            loop.backward()
            loop.backed()
            device.synchronize()
        loop.step()
        loop.stepped()
    loop.exhaust(source)
    recording = loop.close()
    assert measure(recording).exposed_wait_share == pytest.approx(4 / 15, rel=0.01)
    assert gap_share(recording) == pytest.approx(7 / 15, rel=0.01)


@pytest.mark.parametrize(("copy", "gap"), [(2.0, 0.0), (9.0, 4.0)])
def test_copies_on_a_stream_of_their_own_are_a_gap_only_where_nothing_hides_them(copy: float, gap: float) -> None:
    device, loop = watched()
    source = iterator()
    for _ in range(60):
        loop.pull(source)
        device.stream = 1  # the next batch, while this one is computed
        loop.copying()
        device.copy(copy, False)
        loop.copied(1000, False)
        device.stream = 0
        loop.forward()
        device.launch(2)
        loop.called()
        loop.backward()
        device.launch(3)
        loop.backed()
        loop.step()
        loop.stepped()
        device.wait_stream(1)
        device.host(1)
    loop.exhaust(source)
    device.synchronize()
    recording = loop.close()
    assert gap_share(recording) == pytest.approx(gap / max(copy, 5.0), abs=0.01)
    assert measure(recording).exposed_wait_share == 0.0  # the loader is not to blame
    assert measure(recording).gpu_backward_share == pytest.approx(3 / max(copy, 5.0), abs=0.01)


def test_what_marks_cost_is_the_taps_cost() -> None:
    device = SimulatedDevice(exact=True)
    recorder = device.recorder()
    Loop(steps=30, mark_cost=0.005).play(device, recorder)
    assert len(device.marks) >= 30 * 6
    assert recorder.tapped_s() == pytest.approx(5e-6 * len(device.marks), abs=1e-4)


def test_thinned_rows_of_which_some_steps_were_marked_say_the_same() -> None:
    loop = Loop(wait=5, kernels=10, kernel=0.4, steps=40)
    vitals = measure(loop.play()[1])
    table, device = StepTable(capacity=64), SimulatedDevice()
    recorder = device.recorder()
    recorder.table = table
    thinned = replace(loop, steps=2000, mark_cost=0.004).play(device, recorder)[1]
    assert thinned.steps.count.max() >= 32
    assert thinned.steps.device_steps.sum() < 0.8 * 2000
    again = measure(thinned)
    assert again.gpu_gap_share == pytest.approx(vitals.gpu_gap_share, abs=0.01)
    assert again.exposed_wait_share == pytest.approx(vitals.exposed_wait_share, abs=0.01)


@pytest.mark.parametrize("how", ["own", "functional", "cleared"])
def test_an_update_by_hand_is_no_gap(how: str) -> None:
    _, recording = Plain(how=how, wait=15, kernel=0.5, update=4.0, steps=120).play(SimulatedDevice(exact=True))
    assert recording.steps.device_steps.sum() >= 120 - 66
    assert gap_share(recording) == pytest.approx(6.1 / 15.1, abs=0.02)


def test_an_optimizer_that_steps_on_autograds_thread_needs_no_loader_to_be_timed() -> None:
    """Its step is noted when the backward has ended, and has no mark of its own."""
    device, loop = watched()
    for _ in range(20):
        loop.forward()
        device.launch(2)
        loop.called()
        loop.backward()
        device.launch(4)
        loop.backed()
        loop.log.note((STEP, loop.log.clock(), 1))
        loop.log.note((STEPPED, loop.log.clock(), 1))
        device.host(9)
    device.synchronize()
    steps = loop.close().steps
    assert len(steps) == 20 and steps.device_steps.sum() == 19
    assert steps.gpu_s[1:].sum() == pytest.approx(19 * 6e-3, rel=0.01)
    assert steps.gpu_gap_s[1:].sum() == pytest.approx(19 * 3e-3, rel=0.01)
