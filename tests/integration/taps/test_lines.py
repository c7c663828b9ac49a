"""Looks at the training thread's stack find the user's line, and stand for the time since the look before."""

from __future__ import annotations

import inspect
import json
import linecache
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.capture.events import CPU, NEXT, PHASE
from gpu_doctor.capture.lines import sampler as lines
from gpu_doctor.capture.lines.sampler import LineSampler
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording.steps import DATA_WAIT, FORWARD, NO_GRAD
from tests.support.iterators import iterator, only_evaluated
from tests.support.told_loop import begun

HERE = str(Path(__file__))


class Stage:
    """A training thread that stands still on a line until it is told to go on."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        self.now = 0.0
        self.recorder = begun(Recorder(clock=lambda: round(self.now * 1e9)))
        self.sampler = LineSampler(self.recorder)

    def stand(self) -> None:
        self.there.set()
        self.go.wait(10)

    def linger(self) -> None:
        self.there.set()
        self.go.wait(10)  # another line

    def watch(self, act: Callable[[], object], seconds: list[float]) -> None:
        """Runs `act` in a thread, looks once it stands still and then after each of `seconds`."""
        self.there.clear()
        self.go.clear()
        thread = threading.Thread(target=act)
        thread.start()
        assert self.there.wait(10)
        self.recorder.log.thread = thread.ident or 0
        self.sampler.sample()
        for passed in seconds:
            self.now += passed
            self.sampler.sample()
        self.go.set()
        thread.join()
        self.note(CPU, 0)

    def note(self, code: int, arg: object) -> None:
        """What the loop's thread would note, a nanosecond later, at once folded."""
        self.now += 1e-9
        self.recorder.log.note((code, self.recorder.clock(), arg))
        self.recorder.log.thread = threading.get_ident()  # which alone folds
        self.recorder.fold()


def line_of(function: Callable[..., object], offset: int) -> int:
    """The number of a line in this file, counted from the function's first."""
    return inspect.getsourcelines(function)[1] + offset


def slow(stage: Stage) -> None:
    stage.stand()


def library(stage: Stage) -> None:
    json.loads("[1]", object_hook=None, parse_int=lambda _: stage.linger())


def test_a_look_during_which_the_thread_went_on_is_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the lock may be lost at any moment while the stack is taken: its time is nobody's."""
    stage = Stage()
    stage.note(PHASE, FORWARD)

    def late(thread: int) -> list[FrameType]:
        found = stack_of(thread)
        stage.now += 0.001
        stage.recorder.log.note((PHASE, stage.recorder.clock(), NO_GRAD))
        stage.now += 0.001
        return found

    stage.watch(lambda: slow(stage), [0.3])
    assert [(one.phase, one.no_grad, one.share) for one in stage.sampler.costs()] == [("forward", False, 1.0)]
    monkeypatch.setattr(lines, "stack_of", late)
    stage.watch(lambda: slow(stage), [0.3])
    assert [(one.phase, one.no_grad) for one in stage.sampler.costs()] == [("forward", False)]
    assert stage.sampler.costs()[0].share == pytest.approx(0.5, abs=0.01)


def test_the_standing_line_gets_the_time() -> None:
    stage = Stage()
    stage.watch(lambda: slow(stage), [0.1, 0.3])
    stage.watch(lambda: library(stage), [0.6])
    first, second = stage.sampler.costs()
    assert (first.share, second.share) == (pytest.approx(0.6), pytest.approx(0.4))
    assert first.file == second.file == HERE
    assert (first.function, second.function) == ("linger", "stand")
    assert second.text == "self.go.wait(10)"
    assert second.line == line_of(Stage.stand, 2)
    assert second.phase == "other"
    assert not second.in_torch


def test_a_look_knows_the_phase() -> None:
    stage = Stage()
    stage.note(PHASE, DATA_WAIT)
    stage.watch(lambda: slow(stage), [0.1])
    held_out = iterator()
    only_evaluated(stage.recorder.step_clock.sources, held_out)
    stage.note(NEXT, held_out)
    stage.watch(lambda: slow(stage), [0.2])
    assert [(one.phase, round(one.share, 6)) for one in stage.sampler.costs()] == [
        ("evaluation", 0.666667),
        ("data_wait", 0.333333),
    ]


def test_library_frames_fold_into_the_line_that_called_them() -> None:
    stage = Stage()
    done = threading.Event()

    def waiting() -> None:
        stage.there.set()
        done.wait(10)

    thread = threading.Thread(target=waiting)
    thread.start()
    assert stage.there.wait(10)
    stage.recorder.log.thread = thread.ident or 0
    for _ in range(50):
        stage.now += 0.1
        stage.sampler.sample()
    done.set()
    thread.join()
    stage.note(CPU, 0)
    cost = stage.sampler.costs()[0]
    assert cost.text in ("done.wait(10)", "stage.there.set()")  # and not a line of threading.py
    assert cost.file == HERE


def test_before_the_loop_and_after_the_thread_there_is_nothing() -> None:
    now = [0]
    recorder = Recorder(clock=lambda: now[0])
    sampler = LineSampler(recorder)
    for _ in range(3):
        now[0] += 10**9
        sampler.sample()
    assert sampler.costs() == ()
    begun(recorder)
    recorder.log.thread = -1
    for _ in range(3):
        now[0] += 10**9
        sampler.sample()
    recorder.fold()
    assert sampler.costs() == ()


def test_looking_puts_nothing_anywhere() -> None:
    stage = Stage()
    stage.watch(lambda: slow(stage), [0.1] * 10)
    assert stage.sampler.costs()[0].share == pytest.approx(1.0)


STEP = """\
import time

def metric(out):
    return ahead(out)

def ahead(out):
    time.sleep(4 * unit)

def criterion(out):
    return (out * big).square().mean()

def train_step(x):
    opt.zero_grad()
    out = net(x)
    loss = criterion(out)
    score = metric(out)
    loss.backward()
    opt.step()
    time.sleep(unit)
    return loss.item(), score
"""


@pytest.mark.parametrize(
    ("steps", "unit"), [(25, 0.006), (150, 0.001)], ids=["while all is heard", "in steps that repeat"]
)
def test_what_lies_before_the_backward_is_known_and_what_of_it_is_no_computing(steps: int, unit: float) -> None:
    """A metric two calls deep, in a step of another cell."""
    file = "<another cell>"
    linecache.cache[file] = (len(STEP), None, STEP.splitlines(keepends=True), file)
    net = torch.nn.Linear(8, 8)
    names = {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.01), "x": torch.rand(4, 8), "unit": unit}
    names["big"] = torch.rand(round(40e6 * unit), 1, 8)  # computes about as long as a unit
    exec(compile(STEP, file, "exec"), names)
    recording = gpu_doctor.case(f"for _ in range({steps}):\n    loss, score = train_step(x)\n", names).run()
    slept = {one.text: one.before_backward for one in recording.lines if "sleep" in one.text and one.outside_torch}
    assert slept["time.sleep(4 * unit)"] and not slept.get("time.sleep(unit)"), "short ones may be seen by no look"
    computed = [one for one in recording.lines if "big" in one.text]
    assert computed and sum(one.share for one in computed if not one.outside_torch) > 0.5 * sum(
        one.share for one in computed
    )
    found = next(one for one in gpu_doctor.diagnose(recording).findings if one.rule == "slow-python")
    assert any("4 * unit" in one for one in found.evidence)


TWICE = """
import time
took = []
class Net(torch.nn.Linear):
    def forward(self, x):
        begin = time.perf_counter()
        out = super().forward(x + (time.sleep(0.002) or 0.0))
        took.append((torch.is_grad_enabled(), time.perf_counter() - begin))
        return out
net = Net(8, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(900):
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()
    with torch.no_grad():
        seen = net(x).argmax(1)
"""


def test_the_clock_of_a_second_forward_is_its_own() -> None:
    """Looks tell that it trains nothing, the step clock how long it is: half of both, as a clock inside says."""
    namespace: dict[str, Any] = {"torch": torch, "x": torch.rand(4, 8)}
    recording = gpu_doctor.case(TWICE, namespace).run()
    vitals = gpu_doctor.diagnose(recording).vitals
    assert vitals.forward_share is not None and vitals.no_grad_share is not None
    took = namespace["took"][-2 * vitals.measured_steps :]
    again_s = sum(seconds for grad, seconds in took if not grad)
    assert vitals.no_grad_share / vitals.forward_share == pytest.approx(again_s / sum(s for _, s in took), abs=0.02)
    again = [one for one in vitals.lines if one.no_grad]
    assert {one.phase for one in again} == {"forward"}
    assert sum(one.share for one in again) == pytest.approx(vitals.no_grad_share)
