"""Looks at the training thread's stack find the user's line, and stand for the time since the look before."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_doctor.phases import DATA_WAIT
from gpu_doctor.recorder import Recorder
from gpu_doctor.taps.lines import LineSampler

HERE = str(Path(__file__))


class Stage:
    """A training thread that stands still on a line until it is told to go on."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        self.now = 0.0
        self.recorder = Recorder()
        self.recorder.ledger.begin()
        self.sampler = LineSampler(self.recorder, lambda: self.now)

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
        self.recorder.pulse.thread = thread.ident or 0
        self.sampler.look()
        for passed in seconds:
            self.now += passed
            self.sampler.look()
        self.go.set()
        thread.join()


def line_of(function: Callable[..., object], offset: int) -> int:
    """The number of a line in this file, counted from the function's first."""
    return inspect.getsourcelines(function)[1] + offset


def slow(stage: Stage) -> None:
    stage.stand()


def library(stage: Stage) -> None:
    json.loads("[1]", object_hook=None, parse_int=lambda _: stage.linger())


def test_the_standing_line_gets_the_time() -> None:
    stage = Stage()
    stage.watch(lambda: slow(stage), [0.1, 0.3])
    stage.watch(lambda: library(stage), [0.6])
    first, second = stage.sampler.costs()
    assert (first.share, second.share) == (0.6, 0.4)
    assert first.file == second.file == HERE
    assert (first.function, second.function) == ("linger", "stand")
    assert second.text == "self.go.wait(10)"
    assert second.line == line_of(Stage.stand, 2)
    assert second.phase == "other"
    assert not second.in_torch


def test_a_look_knows_the_phase() -> None:
    stage = Stage()
    stage.recorder.ledger.switch(DATA_WAIT)
    stage.watch(lambda: slow(stage), [0.1])
    stage.recorder.ledger.evaluating = True
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
    stage.recorder.pulse.thread = thread.ident or 0
    for _ in range(50):
        stage.now += 0.1
        stage.sampler.look()
    done.set()
    thread.join()
    cost = stage.sampler.costs()[0]
    assert cost.text in ("done.wait(10)", "stage.there.set()")  # and not a line of threading.py
    assert cost.file == HERE


def test_before_the_loop_and_after_the_thread_there_is_nothing() -> None:
    recorder = Recorder()
    now = [0.0]
    sampler = LineSampler(recorder, lambda: now[0])
    for _ in range(3):
        now[0] += 1
        sampler.look()
    assert sampler.costs() == ()
    recorder.ledger.begin()
    recorder.pulse.thread = -1
    for _ in range(3):
        now[0] += 1
        sampler.look()
    assert sampler.costs() == ()


def test_looking_puts_nothing_anywhere() -> None:
    stage = Stage()
    stage.watch(lambda: slow(stage), [0.1] * 10)
    assert stage.sampler.costs()[0].share == pytest.approx(1.0)
