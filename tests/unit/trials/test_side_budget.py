"""The seconds of a trial's side begin when it is warm; set-up, compile and downloads have their own, told meanwhile."""

from __future__ import annotations

import re
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import LoaderSetup, Recording, Settings
from gpu_doctor.trials.rounds import LONGER_AFTER, Rounds
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.side_budget import AROUND_S, SETUP_S, SideBudget, before_s
from tests.support.recordings import Loop
from tests.support.simulated_device import Noted


class Side:
    """A side of a trial on a clock that passes when told to."""

    def __init__(self, seconds: float = 5.0, steps: int | None = 50) -> None:
        self.ns = 1_000_000_000
        self.recorder = Recorder(clock=lambda: self.ns, max_steps=steps)
        self.budget = SideBudget(self.recorder, seconds, steps)
        self.loop = Noted(self.recorder)

    def passes(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    def trains(self, *steps_s: float) -> str:
        """Steps that take so long, until the side is ended; its ending."""
        if not self.recorder.started():
            self.loop.pull()
        for one in steps_s:
            if self.recorder.ending:
                break
            self.passes(one)
            self.loop.learns()
            self.loop.pull()  # with the next one's begin the step has ended
            self.recorder.fold()
        return self.recorder.ending

    @property
    def steps(self) -> int:
        return self.recorder.step_count


def test_setting_up_takes_nothing_from_the_seconds() -> None:
    side = Side(seconds=5.0)
    side.passes(120.0)
    side.trains(*[0.5] * 30)
    assert side.recorder.ending == "budget-reached"
    assert 10 <= side.steps <= 12  # 5 s of steps that take 0.5 s, beside the first one


def test_a_side_without_a_set_up_has_the_same_seconds() -> None:
    side = Side(seconds=5.0)
    side.trains(*[0.5] * 30)
    assert 10 <= side.steps <= 12


@pytest.mark.parametrize("slow", [(60.0,), (60.0, 40.0), (60.0, 0.5, 40.0), (20.0, 20.0, 20.0, 20.0)])
def test_steps_that_compile_take_nothing_from_the_seconds(slow: tuple[float, ...]) -> None:
    """A compiler's first step, a second one for other shapes, and those where it comes back soon."""
    side = Side(seconds=5.0)
    side.trains(*slow, *[0.5] * 30)
    assert side.recorder.ending == "budget-reached"
    assert len(slow) + 9 <= side.steps <= len(slow) + 12


def test_a_step_that_is_slow_late_is_measured() -> None:
    side = Side(seconds=5.0)
    side.trains(*[0.1] * 20, 60.0, 0.1)
    assert side.recorder.ending == "budget-reached"


def test_steps_that_are_all_slow_end_as_soon_as_they_can_be_judged() -> None:
    side = Side(seconds=5.0)
    side.trains(*[20.0] * 30)
    assert side.steps == 5


def test_a_side_is_not_warmed_up_for_longer_than_its_set_up_may_take() -> None:
    side = Side(seconds=5.0)
    side.passes(SETUP_S - 1.0)
    side.trains(*[SETUP_S / 2.5] * 30)
    assert side.steps == 3
    assert side.recorder.ending == "budget-reached"


def test_steps_that_get_ever_slower_do_not_move_the_deadline_for_ever() -> None:
    side = Side(seconds=5.0)
    side.trains(*[0.1] * 5, *[0.9 * SETUP_S] * 30)
    assert side.steps == 7


def test_a_set_up_that_takes_nearly_all_of_its_own_leaves_the_seconds_whole() -> None:
    side = Side(seconds=5.0)
    side.passes(SETUP_S - 1.0)
    side.trains(*[0.5] * 30)
    assert 10 <= side.steps <= 12


def test_the_first_steps_of_workers_are_warm_up() -> None:
    """As `warmup_rows` has it: their first batches arrive together."""
    few, many = Side(seconds=5.0), Side(seconds=5.0)
    many.recorder.loaders["a"] = LoaderSetup("a", num_workers=8)
    few.trains(*[0.5] * 40)
    many.trains(*[0.5] * 40)
    assert many.steps - few.steps == 8


def test_the_steps_of_the_budget_are_all_steps() -> None:
    side = Side(seconds=5.0, steps=10)
    side.passes(100.0)
    side.trains(*[0.01] * 30)
    assert side.steps == 10


def test_what_a_side_is_at_is_told_while_it_lasts() -> None:
    side = Side(seconds=5.0)
    assert side.budget.stage() == "setting up, 0 s so far"
    side.passes(12.0)
    assert side.budget.stage() == "setting up, 12 s so far"
    side.trains(20.0)
    assert side.budget.stage() == "warming up, 32 s so far with the set-up"
    side.trains(0.1, 0.1, 0.1, 0.1)
    assert side.budget.stage() == ""
    assert side.recorder.deadline_ns is not None


def test_patience_is_counted_from_the_last_step() -> None:
    side = Side(seconds=5.0)
    side.passes(100.0)
    assert side.budget.patience_s() == pytest.approx(SETUP_S - 100.0)
    side.trains(50.0)
    assert side.budget.patience_s() == pytest.approx(SETUP_S)
    side.passes(SETUP_S)
    assert side.budget.patience_s() <= 0.0


def test_a_case_tells_the_stage_of_its_trial() -> None:
    told: list[str] = []
    cell = "told.append(case.progress)"
    space: dict[str, Any] = {"told": told}
    case = gpu_doctor.case(cell, space)
    space["case"] = case
    case.run()
    case.say("round 1: baseline")
    case.on_begin = lambda recorder, role: told.append(case.progress)
    case.once({}, "baseline", 50, 5.0)
    assert all(re.fullmatch("round 1: baseline, setting up, [0-9]+ s so far", one) for one in told[1:])
    assert case.progress == "round 1: baseline"
    assert told[0] == ""


def test_the_part_before_the_measuring_is_read_off_a_recording() -> None:
    recording = Loop(steps=60).recording()
    assert before_s(recording) == pytest.approx(float(recording.steps.wall_s[0]))
    none = Recording(recording.steps.rows(0, 0), duration_s=3.0)
    assert before_s(none) == 3.0


class Kept:
    """Stands for a snapshot."""

    def restore(self) -> tuple[str, ...]:
        return ()


class Played:
    """Sides whose set-up and steps take so long on a clock that passes when they say so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, setup_s: float, wall_ms: float = 10.0) -> None:
        self.now, self.setup_s, self.sides, self.left = 0.0, setup_s, 0, list[float]()
        self.loop = Loop(steps=50, forward=wall_ms)
        monkeypatch.setattr("gpu_doctor.trials.rounds.time", self)

    def monotonic(self) -> float:
        return self.now

    def once(self, settings: Settings, role: str, steps: int, seconds: float) -> Result:
        self.sides += 1
        self.left.append(seconds)
        one = self.loop.recording()
        whole_s = float(one.steps.wall_s.sum())
        later = {**vars(one.steps), "start_s": one.steps.start_s + self.setup_s}
        self.now += self.setup_s + whole_s
        return Result(Recording(type(one.steps)(**later), duration_s=self.setup_s + whole_s))

    def rounds(self) -> Rounds:
        kept: Any = Kept()
        return Rounds(self.once, kept, lambda said: None, lambda: False)


def test_a_trial_spends_its_seconds_on_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=40.0)
    rounds = played.rounds()
    assert rounds.pair("", {}, {}, 50, 60.0)  # with the set-up in it the 60 s were over
    assert rounds.took_s > 80.0
    assert rounds.spent_s < 5.0
    assert played.left == [15.0, 15.0]


@pytest.mark.parametrize(("setup_s", "asked"), [(40.0, [50, 100, 200, 200]), (0.0, [50, 50, 50, 50])])
def test_runs_that_give_no_answer_become_longer_where_their_set_up_takes_longer(
    monkeypatch: pytest.MonkeyPatch, setup_s: float, asked: list[int]
) -> None:
    played = Played(monkeypatch, setup_s=setup_s)
    rounds = played.rounds()
    rounds.pair("", {}, {}, 50, 600.0)
    found = []
    for pairs in (0, LONGER_AFTER, 2 * LONGER_AFTER, 5 * LONGER_AFTER):
        rounds.elsewhere = pairs - len(rounds.bases)
        found.append(rounds._lasting(50))
    assert found == asked


def test_no_further_pair_begins_where_setting_up_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Played(monkeypatch, setup_s=AROUND_S / 3)
    assert not slow.rounds().pair("", {}, {}, 50, 60.0)
    rounds = Played(monkeypatch, setup_s=AROUND_S / 9).rounds()
    assert [rounds.pair("", {}, {}, 50, 60.0) for _ in range(4)][-1] is False
