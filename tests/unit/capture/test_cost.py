"""What watching may cost: taps first, the rest for our threads; who is too dear goes slower; short steps are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu_doctor.capture.cost import BUDGET_SHARE, LEAST_SHARE, Governor
from gpu_doctor.capture.events import Log
from gpu_doctor.capture.own_cost import OwnCost
from gpu_doctor.capture.poller import LONGEST_PERIOD_S, Poller
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.notebook import live_view as view
from tests.support.simulated_device import Noted


class Run:
    """A run in which the taps take a share of the wall-clock; time passes when it is told to."""

    def __init__(self, taps_share: float = 0.0) -> None:
        self.now_s = self.tapped_s = self.own_s = 0.0
        self.taps_share = taps_share
        self.governor = Governor(lambda: self.tapped_s, lambda: self.now_s)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.tapped_s += self.taps_share * seconds

    def work(self, seconds: float) -> None:
        self.own_s += seconds
        self.passes(seconds)


def test_one_thread_has_what_the_taps_leave() -> None:
    run = Run(taps_share=0.004)
    run.passes(10)
    assert run.governor.allowed("poller", 0.003) == pytest.approx(BUDGET_SHARE - 0.004)


def test_what_fits_is_not_slowed_and_what_does_not_goes_slower_alike() -> None:
    run = Run()
    assert run.governor.allowed("refresher", 0.004) >= 0.004
    assert run.governor.allowed("poller", 0.005) >= 0.005
    assert run.governor.allowed("poller", 0.016) == pytest.approx(0.8 * BUDGET_SHARE)
    assert run.governor.allowed("refresher", 0.004) == pytest.approx(0.2 * BUDGET_SHARE)


def test_the_threads_keep_a_little_where_the_taps_take_all() -> None:
    run = Run(taps_share=0.05)
    run.passes(10)
    assert run.governor.allowed("poller", 0.02) == pytest.approx(LEAST_SHARE)


def test_the_taps_are_seen_by_what_they_take_now_not_by_what_the_cell_did_before() -> None:
    run = Run()
    run.passes(300)  # the data is prepared
    assert run.governor.taps_share == 0.0
    run.taps_share = 0.008
    for _ in range(20):
        run.passes(0.5)
        share = run.governor.taps_share
    assert share == pytest.approx(0.008, rel=0.02)


def polled(run: Run, reading_s: float, look_s: float) -> Poller:
    """A poller on the run's clock whose readings and looks cost so much CPU."""

    def look(_: float) -> None:
        run.work(look_s)

    class Probe:
        def __enter__(self) -> Callable[[], list[Any]]:
            return lambda: run.work(reading_s) or []  # type: ignore[func-returns-value]

        def __exit__(self, *error: object) -> None:
            """Nothing to close."""

    return Poller(
        [("dear", lambda scope: Probe())],
        lambda metric, at, value: None,
        note=lambda text: None,
        clock=lambda: run.now_s,
        cpu_clock=lambda: run.own_s,
        sampler=look,
        allowed=lambda wanted: run.governor.allowed("poller", wanted),
    )


@pytest.mark.parametrize(("taps", "reading_s", "look_s"), [(0.0, 1e-4, 1e-5), (0.004, 4e-3, 2e-4), (0.008, 2e-3, 1e-4)])
def test_the_poller_and_the_taps_together_stay_within_the_budget(taps: float, reading_s: float, look_s: float) -> None:
    run = Run(taps)
    poller = polled(run, reading_s, look_s)
    poller.open()
    while run.now_s < 20:  # it learns what a reading costs
        run.passes(max(poller.tick(), 1e-4))
    begin_s, before = run.now_s, run.own_s + run.tapped_s
    while run.now_s < 320:
        run.passes(max(poller.tick(), 1e-4))
    share = (run.own_s + run.tapped_s - before) / (run.now_s - begin_s)
    assert share <= 1.05 * BUDGET_SHARE
    assert poller.period_s <= LONGEST_PERIOD_S
    if taps == 0.0:
        assert poller.period_s == 0.5, "what is cheap is not slowed"


def test_a_view_that_begins_slows_a_dear_poller_down() -> None:
    run = Run()
    poller = polled(run, 2e-3, 1e-4)
    poller.open()
    while run.now_s < 20:
        run.passes(max(poller.tick(), 1e-4))
    alone = poller.period_s
    run.governor.allowed("refresher", 0.02)
    while run.now_s < 30:
        run.passes(max(poller.tick(), 1e-4))
    assert poller.period_s > 1.3 * alone


def test_a_view_that_takes_all_before_the_poller_has_measured_itself_does_not_stop_it() -> None:
    run = Run()
    run.governor.allowed("refresher", 0.02)
    poller = polled(run, 2e-3, 1e-4)
    poller.open()
    poller.tick()
    assert poller.period_s == 0.5, "its usual pace, until it knows what it takes"
    while run.now_s < 20:
        run.passes(max(poller.tick(), 1e-4))
    assert poller.period_s > 0.5


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


@pytest.mark.parametrize(("taps", "push_s"), [(0.0, 1e-3), (0.005, 8e-3), (0.0, 0.02)])
def test_the_refresher_draws_less_often_where_drawing_is_dear(taps: float, push_s: float) -> None:
    run = Run(taps)
    drawn = view.Dashboard.__new__(view.Dashboard)
    drawn.cpu_s, drawn._drawing_s = 0.0, 0.0
    drawn._feed = run  # type: ignore[assignment]  # what it asks of a live run is its governor

    def push(wait: bool = False) -> None:
        run.work(push_s)
        drawn.cpu_s += push_s

    drawn.push = push  # type: ignore[method-assign]
    stopping = Stopping(run, 300.0)
    drawn._stopping = stopping  # type: ignore[assignment]
    drawn._refresh()
    assert (run.own_s + run.tapped_s) / run.now_s <= 1.1 * BUDGET_SHARE
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

    recorder.listeners.hear_beats(beat)
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


def test_of_steps_that_are_long_enough_it_says_nothing() -> None:
    assert stepping(5_000_000, steps=500).close().notes == ()


def test_of_a_loop_that_is_over_in_a_moment_it_says_nothing() -> None:
    assert stepping(100_000, steps=200).close().notes == ()


def account(searched_s: float = 0.0, searches: int = 0) -> OwnCost:
    """What a run has cost that has looked for models so long, of so many optimizers."""
    cost = OwnCost(Log(lambda: 0))
    cost.searched_s, cost.searches = searched_s, searches
    return cost


def test_a_run_without_steps_says_nothing() -> None:
    assert Recorder(clock=lambda: 0).close().notes == ()
    assert account().too_dear(1.0, 0.0, 0) == ""


def test_the_sentence_names_longer_steps_in_milliseconds() -> None:
    assert "take only 1.50 ms" in account().too_dear(0.03, 1.5, 1000)


def test_what_looking_for_models_takes_is_said_where_it_is_much() -> None:
    assert account(searched_s=0.1, searches=20).too_dear(0.001, 2.0, 1000) == ""
    assert account(searched_s=0.5, searches=8).too_dear(0.001, 2.0, 1000) == ""
    told = account(searched_s=0.5, searches=20).too_dear(0.001, 2.0, 1000)
    assert "25 % of this loop finding the models" in told
    recorder = stepping(5_000_000, steps=500)
    recorder.cost.searched_s, recorder.cost.searches = 1.0, 20
    recording = recorder.close()
    assert len(recording.notes) == 1 and recording.overhead_s >= 1.0


def test_the_governor_may_be_asked_by_several_threads_at_once() -> None:
    run = Run(0.002)
    failed: list[BaseException] = []

    def ask(who: str) -> None:
        try:
            for i in range(2000):
                run.now_s += 0.01
                assert 0 < run.governor.allowed(who, 0.001 * (i % 20)) <= BUDGET_SHARE
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(f"thread {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
