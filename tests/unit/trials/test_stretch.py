"""Steps on a device that runs behind its host are timed by the device: in a trial, and in the user's run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import gpu_doctor
from gpu_doctor.capture import running
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.diagnosis import paced_s
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from gpu_doctor.trials.compare.effect import Effect, compare
from gpu_doctor.trials.stretch import MARKED, Stretch
from tests.support.simulated_device import SimulatedDevice
from tests.support.simulated_loops import Loop

STEPS = 50
COPIES = Loop(wait=0.1, copy=1.0, kernels=10, kernel=0.9, launch_cost=0.01, steps=STEPS)
"""10 ms of a step are the device's, one of them a copy; the host launches them in 0.22 ms."""


def side(loop: Loop, budget: int | None = STEPS, device: SimulatedDevice | None = None) -> Recording:
    """What a side of a trial records of it."""
    device = device or SimulatedDevice()
    recorder = device.recorder(max_steps=budget)
    recorder.device_waits.wait_by(lambda: device.synchronize() >= 0)
    stretch = Stretch(recorder)
    recording = loop.play(device, recorder)[1]
    return dataclasses.replace(recording, outcome="budget-reached", timed=stretch.timed(recording))


def tried(before: Loop, after: Loop) -> Effect:
    """An A B B A of the two."""
    return compare([side(before), side(before)], [side(after), side(after)])


def step_s(device: SimulatedDevice, first: int = 0) -> float:
    """Of the device, between the ends of two steps: the truth, without any mark."""
    return (device.ends[-1] - device.ends[first]) * 1e-9 / (len(device.ends) - 1 - first)


@pytest.mark.parametrize("queued", [5.0, 25.0, 100.0, 1000.0])
def test_launching_ahead_of_an_equally_fast_device_is_no_difference(queued: float) -> None:
    blocking = dataclasses.replace(COPIES, most_queued_ms=queued)
    found = tried(blocking, dataclasses.replace(blocking, copy_blocks=False))
    assert found.verdict not in ("faster", "slower")
    assert found.speedup == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("steps", [12, 20, 50, 400])
@pytest.mark.parametrize("queued", [35.0, 1000.0])
def test_a_device_without_a_clock_of_its_own_is_timed_by_the_waits(steps: int, queued: float) -> None:
    blocking = dataclasses.replace(COPIES, steps=steps, most_queued_ms=queued)
    told = [side(one, steps) for one in (blocking, dataclasses.replace(blocking, copy_blocks=False))]
    unread = np.full(steps, np.nan)
    before, after = (
        dataclasses.replace(one, steps=dataclasses.replace(one.steps, gpu_since_s=unread, gpu_since_steps=unread))
        for one in told
    )
    found = compare([before, before], [after, after])
    assert found.verdict not in ("faster", "slower") and found.speedup == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("kernel", [0.4, 0.65, 1.4])
def test_a_device_that_works_faster_or_slower_is_found_so(kernel: float) -> None:
    before = dataclasses.replace(COPIES, copy_blocks=False)
    after = dataclasses.replace(before, kernel=kernel)
    found = tried(before, after)
    assert found.speedup == pytest.approx(10.0 / (10 * kernel + 1.0), rel=0.02)
    assert found.verdict == ("faster" if kernel < 0.9 else "slower")
    assert found.candidate_samples_per_s == pytest.approx(8e3 / (10 * kernel + 1.0), rel=0.02)


def test_a_trial_waits_while_it_warms_up_and_once_at_its_end() -> None:
    waits = list[int]()

    class Waited(SimulatedDevice):
        def synchronize(self) -> int:
            waits.append(len(self.ends))
            return super().synchronize()

    device = Waited()
    recording = side(dataclasses.replace(COPIES, copy_blocks=False), device=device)
    assert waits[-1] == STEPS  # the loop's own
    first, last = waits[-3:-1]
    assert MARKED <= first <= STEPS // 5 + MARKED and last == STEPS
    assert recording.timed is not None
    inside = recording.timed.rows(recording.steps)
    assert np.flatnonzero(inside).tolist() == list(range(first, STEPS))
    assert recording.timed.wall_s == pytest.approx(1e-9 * (device.ends[-1] - device.ends[first - 1]), rel=0.01)


def test_the_waits_are_no_part_of_any_step() -> None:
    """Launching a step takes the host 0.22 ms with the wait for its batch, and folding the log up to 0.2 ms; the queue,
    of 10 ms a step, is never full."""
    recording = side(dataclasses.replace(COPIES, copy_blocks=False))
    assert recording.timed is not None
    steps = recording.steps.where(recording.timed.rows(recording.steps))
    assert steps.wall_s.min() == pytest.approx(0.22e-3) and steps.wall_s.max() < 0.5e-3
    assert steps.other_s.max() < 0.3e-3
    vitals = measure(recording)
    assert vitals.step_wall_s == pytest.approx(10e-3, rel=0.02)
    assert vitals.data_wait_share is not None and 0.3 < vitals.data_wait_share < 0.5  # the fold is in the step


@pytest.mark.parametrize("launch_cost", [0.01, 0.1])
def test_marks_are_before_the_stretch_and_cost_it_nothing(launch_cost: float) -> None:
    """Kernels of 0.1 ms, ten a step: the host or the device sets the pace."""
    loop = Loop(wait=0.1, kernels=10, kernel=0.1, launch_cost=launch_cost, steps=STEPS)
    recording, bare = side(loop), step_s(loop.play(SimulatedDevice(exact=True))[0], 5)
    assert recording.timed is not None
    inside = recording.timed.rows(recording.steps)
    read = recording.steps.device_steps
    assert read[inside].sum() == 0 and read[~inside].sum() >= MARKED
    assert measure(recording).exposed_wait_share is not None
    assert recording.timed.wall_s / inside.sum() == pytest.approx(bare, rel=0.05)


@pytest.mark.parametrize("counted", [False, True])
def test_who_counts_what_lies_between_steps_goes_on_to_hear_of_each(counted: bool) -> None:
    device = SimulatedDevice()
    recorder = device.recorder(max_steps=STEPS)
    recorder.device_waits.wait_by(lambda: device.synchronize() >= 0)
    if counted:
        recorder.plan.fold_each_step()
    Stretch(recorder)
    COPIES.play(device, recorder)
    assert recorder.plan.fold_each_step() == counted


@dataclasses.dataclass
class EndsByItself(Loop):
    """A loop that is over before its budget is; what the cell does behind it ends before the trial waits."""

    behind_ms: float = 0.0

    def trial(self) -> tuple[SimulatedDevice, Recording]:
        """A side of a trial."""
        device = SimulatedDevice()
        recorder = device.recorder(max_steps=10 * self.steps)
        stretch, wait = Stretch(recorder), device.synchronize
        recorder.device_waits.wait_by(lambda: wait() >= 0)

        def over() -> int:
            device.host(self.behind_ms)
            stretch.loop_over()
            return 0

        device.synchronize = over  # type: ignore[method-assign]
        recording = self.play(device, recorder)[1]
        return device, dataclasses.replace(recording, timed=stretch.timed(recording))


@pytest.mark.parametrize(("behind_ms", "waited"), [(1.0, True), (2000.0, False)])
def test_a_loop_that_ends_by_itself_is_timed_without_what_comes_behind_it(behind_ms: float, waited: bool) -> None:
    loop = dataclasses.replace(COPIES, copy_blocks=False)
    device, recording = EndsByItself(**vars(loop), behind_ms=behind_ms).trial()
    assert (recording.timed is not None) == waited
    assert measure(recording).step_wall_s == pytest.approx(step_s(device), rel=0.05)


DEEP = dataclasses.replace(COPIES, copy_blocks=False, most_queued_ms=1000.0)


@pytest.mark.parametrize("steps", [50, 64, 200, 1000])
@pytest.mark.parametrize("mark_cost", [0.0, 0.004])
def test_a_users_run_is_as_fast_as_its_device(steps: int, mark_cost: float) -> None:
    device, recording = dataclasses.replace(DEEP, steps=steps, mark_cost=mark_cost).play()
    assert recording.timed is None
    vitals = measure(recording)
    assert vitals.step_wall_s == pytest.approx(step_s(device), rel=0.05)
    assert vitals.samples_per_s == pytest.approx(8.0 / step_s(device), rel=0.05)
    assert device.unfreed <= 3
    if mark_cost and steps == 1000:
        assert recording.steps.device_steps.sum() < 0.8 * steps  # some steps are not marked, and are timed all the same


def test_two_runs_that_were_not_waited_for_are_compared_by_their_devices_clock() -> None:
    blocking = dataclasses.replace(COPIES, steps=200, mark_cost=0.004).play()[1]
    ahead = dataclasses.replace(DEEP, steps=200, mark_cost=0.004).play()[1]
    found = compare(blocking, ahead)
    assert found.speedup == pytest.approx(1.0, abs=0.05) and found.verdict not in ("faster", "slower")


@pytest.mark.parametrize("evaluates", ["no_grad", "held"])
def test_the_device_is_timed_through_evaluations(evaluates: str) -> None:
    loop = dataclasses.replace(DEEP, steps=200, evaluate_every=90, evaluation_batches=2, evaluates=evaluates)
    device, recording = loop.play()
    # The loop waits at each evaluation's end, so that the host is ahead by the last 20 steps alone.
    assert measure(recording).step_wall_s == pytest.approx(step_s(device), rel=0.05)
    assert measure(recording).host_ahead > 1.05


def test_rows_that_stand_for_several_steps_are_timed_by_the_device_too() -> None:
    device = SimulatedDevice()
    recorder = device.recorder()
    recorder.table = StepTable(capacity=64)
    recording = dataclasses.replace(DEEP, steps=1000, mark_cost=0.004).play(device, recorder)[1]
    assert recording.steps.count.max() >= 16
    assert measure(recording).step_wall_s == pytest.approx(step_s(device), rel=0.05)


def test_where_the_device_keeps_up_the_hosts_clock_counts() -> None:
    _, recording = Loop(wait=15.0, kernel=0.5, steps=100).play()
    assert measure(recording).host_ahead == 1.0
    assert paced_s(recording, recording.steps) is recording.steps.wall_s


def test_what_the_device_has_not_done_when_the_cell_ends_is_read_when_the_losses_are() -> None:
    device = SimulatedDevice()
    recorder = device.recorder()
    wait, device.synchronize = device.synchronize, lambda: 0  # type: ignore[method-assign]
    recorder.losses.keep(0, recorder.losses.offer("loss"))

    def read(losses: list[object]) -> list[float]:
        wait()
        return [1.0] * len(losses)

    recorder.losses.read_by(read)
    recording = DEEP.play(device, recorder)[1]
    assert recording.steps.device_steps.sum() == STEPS - 1
    assert measure(recording).step_wall_s == pytest.approx(step_s(device), rel=0.05)
    assert device.unfreed <= 3


CELL = """
import torch
over = False
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(steps):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
over = True
"""


def case_of(steps: int, waits: Callable[[], bool]) -> gpu_doctor.Case:
    """A case on the CPU whose trials are told that there is a device to wait for."""
    case = gpu_doctor.case(CELL, {"steps": steps})
    case.run()

    def begins(recorder: Recorder, role: str) -> None:
        recorder.device_waits.wait_by(waits)

    case.on_begin = begins
    return case


def test_a_trial_of_a_cell_waits_at_both_ends_and_is_timed_by_them() -> None:
    waited = list[bool]()

    def waits() -> bool:
        waited.append(True)
        return True

    effect = case_of(1000, waits).trial({"threads": 1}, steps=30, seconds=0.1)
    assert effect.outcome == "budget-reached" and effect.speedup is not None
    assert len(waited) >= 4  # two sides at least, each at both ends


def test_a_wait_that_fails_leaves_a_trial_as_it_is() -> None:
    def fails() -> bool:
        raise RuntimeError("CUDA error: out of memory")

    case = case_of(1000, fails)
    effect = case.trial({"threads": 1}, steps=30, seconds=0.1)
    assert effect.outcome == "budget-reached" and effect.speedup is not None
    assert all(one.timed is None for pair in case.trials for one in pair)
    assert any("Waiting for the device failed" in note for note in case.trials[0][0].notes)


@pytest.mark.parametrize(("steps", "at"), [(1000, 1), (1000, 0), (20, 0)])
def test_an_interrupt_while_it_waits_ends_the_trial(steps: int, at: int) -> None:
    """At its begin, at the end of its budget, and behind a loop that ended by itself."""
    ends = list[int]()

    def interrupted() -> bool:
        recorder = running()
        assert recorder is not None
        last = bool(recorder.ending or case.namespace["over"])
        if last != bool(at):
            ends.append(recorder.step_count)
            raise KeyboardInterrupt
        return True

    case = case_of(steps, interrupted)
    with pytest.raises(KeyboardInterrupt):
        case.trial({"threads": 1}, steps=30, seconds=0.1)
    assert len(ends) == 1 and running() is None
    assert case.effects[-1].outcome == "interrupted"


def test_nothing_is_waited_for_on_the_cpu() -> None:
    case = gpu_doctor.case(CELL, {"steps": 100})
    case.run()
    case.trial({"threads": 1}, steps=30, seconds=0.1)
    assert all(one.timed is None for pair in case.trials for one in pair)
    recording = case.recordings[0]
    assert paced_s(recording, recording.steps) is recording.steps.wall_s
    assert measure(recording).host_ahead == 1.0
