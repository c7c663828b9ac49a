"""What watching may cost: who draws is held to a share of the thread, and short steps are told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpu_doctor.capture import own_cost
from gpu_doctor.capture.cost import BUDGET_SHARE, EventPrice
from gpu_doctor.capture.events import Log
from gpu_doctor.capture.own_cost import OwnCost
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.notebook import live_view as view
from tests.support.simulated_device import Noted


@pytest.fixture(autouse=True)
def notes_of_our_cost(no_note_of_our_cost: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes on what recording costs are written, as in a run of the user's."""
    monkeypatch.setattr(own_cost, "WORTH_SAYING_S", 1.0)


class Run:
    """A run whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = self.own_s = 0.0

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    def work(self, seconds: float) -> None:
        self.own_s += seconds
        self.passes(seconds)


class Stopping:
    """Takes the place of the event that a refresher waits on: time passes, and nobody sleeps."""

    def __init__(self, run: Run, until_s: float) -> None:
        self.run, self.until_s = run, until_s
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return self.run.now_s >= self.until_s

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.run.passes(seconds)


@pytest.mark.parametrize("push_s", [1e-3, 8e-3, 0.02])
def test_the_refresher_draws_less_often_where_drawing_is_dear(push_s: float) -> None:
    run = Run()
    drawn = view.Dashboard.__new__(view.Dashboard)
    drawn.cpu_s, drawn._drawing_s = 0.0, 0.0

    def push(whole: bool = False) -> None:
        run.work(push_s)
        drawn.cpu_s += push_s

    drawn.push = push  # type: ignore[method-assign]
    stopping = Stopping(run, 300.0)
    drawn._stopping = stopping  # type: ignore[assignment]
    drawn._refresh()
    assert run.own_s / run.now_s <= 1.1 * BUDGET_SHARE
    assert max(stopping.waits) <= 5.0
    if push_s == 1e-3:
        assert max(stopping.waits) == 0.5


def test_a_beat_on_the_training_thread_slows_down_too() -> None:
    now = [0]
    recorder = Recorder(clock=lambda: now[0])
    beats = []

    def beat() -> None:
        beats.append(now[0])
        now[0] += 20_000_000

    recorder.listeners.on_beat(beat)
    for _ in range(600):
        now[0] += 100_000_000
        recorder._steps_ended(now[0])
    spent = 20e6 * len(beats)
    assert spent / now[0] <= 1.3 * BUDGET_SHARE
    assert len(beats) >= 10


def stepping(step_ns: int, steps: int = 12_000) -> Recorder:
    """A run of so many steps of so long, on a virtual clock."""
    now = [0]
    recorder = Recorder(clock=lambda: now[0])
    recorder.step_clock.event_ns = 1000  # what they cost here is not the question
    told = Noted(recorder)
    for _ in range(steps):
        told.ask()
        now[0] += step_ns // 2
        told.batch()
        told.backward()
        now[0] += step_ns - step_ns // 2
        told.backed()
        told.step()
        told.stepped()
    return recorder


def test_of_steps_that_are_too_short_the_recording_says_what_watching_costs() -> None:
    recording = stepping(100_000).close()
    (note,) = recording.notes
    assert note.startswith("Recording takes about ")
    assert "its steps take only 100 µs" in note
    assert recording.overhead_s >= 0.01 * float(np.sum(recording.steps.wall_s))


def test_an_event_costs_half_of_what_an_empty_tap_adds_to_a_bare_call() -> None:
    reads = itertools.count()

    def clock() -> int:
        """Of which every reading takes a microsecond, so that a tap takes as many as it reads the clock more often."""
        return 1000 * next(reads)

    price = EventPrice(clock)
    assert [price.timed() for _ in range(4)][-1] == 1000


def test_one_interrupted_tap_does_not_set_the_price() -> None:
    now = 0
    steps = itertools.chain([1000, 1000, 1_000_000_000], itertools.repeat(1000))

    def clock() -> int:
        nonlocal now
        now += next(steps)
        return now

    price = EventPrice(clock)
    assert [price.timed() for _ in range(12)][-1] == 1000


def test_the_price_is_that_of_the_run() -> None:
    recorder = Recorder()
    recorder.fold()
    recorder.fold()
    assert 0 < recorder.step_clock.event_ns < 1_000_000
    assert Recorder(clock=lambda: 0).step_clock.event_ns == 0


@pytest.mark.parametrize(
    ("searched_s", "searches", "tapped_s", "loop_s", "steps", "note"),
    [
        (0.0, 0, 1.0, 0.0, 0, ""),  # no step
        (0.0, 0, 0.01, 0.02, 200, ""),  # over in a moment
        (0.0, 0, 0.01, 2.5, 500, ""),  # long steps
        (0.0, 0, 0.03, 1.5, 1000, "take only 1.50 ms"),
        (0.1, 20, 0.001, 2.0, 1000, ""),  # a twentieth of the loop
        (0.5, 8, 0.001, 2.0, 1000, ""),  # one search for each of a few optimizers
        (0.5, 20, 0.001, 2.0, 1000, "25 % of this loop finding the models"),
    ],
)
def test_only_costs_that_are_much_of_a_loop_of_seconds_are_noted(
    searched_s: float, searches: int, tapped_s: float, loop_s: float, steps: int, note: str
) -> None:
    cost = OwnCost(Log(lambda: 0))
    cost.searched_s, cost.searches = searched_s, searches
    text = cost.too_dear(tapped_s, loop_s, steps)
    assert note in text and bool(text) == bool(note)


def test_the_search_for_models_is_part_of_the_overhead() -> None:
    recorder = stepping(5_000_000, steps=500)
    recorder.cost.searched_s, recorder.cost.searches = 1.0, 20
    recording = recorder.close()
    assert len(recording.notes) == 1 and recording.overhead_s >= 1.0
