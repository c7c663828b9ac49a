"""The seconds of a trial's side begin when it is warm; set-up, compile and downloads have their own, told meanwhile."""

from __future__ import annotations

import re
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import LoaderSetup, Recording, Settings
from gpu_doctor.trials.rounds import BLOCK_SHARE, FIRST_S, LONGER_AFTER, Rounds
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.side_budget import ENOUGH_STEPS, LONGEST, SETUP_S, WAVES, SideBudget, before_s
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


@pytest.mark.parametrize(
    ("seconds", "most", "setup_s", "steps_s", "fewest", "most_steps"),
    [
        pytest.param(5.0, 50, 0.0, [0.5] * 30, ENOUGH_STEPS, ENOUGH_STEPS + 2, id="no set-up"),
        pytest.param(5.0, 50, 120.0, [0.5] * 30, 30, 30, id="a set-up longer than the seconds, which stay whole"),
        pytest.param(5.0, 50, SETUP_S - 1.0, [0.5] * 30, 30, 30, id="a set-up of nearly all that it may take"),
        pytest.param(5.0, 50, 0.0, [20.0] * 30, 5, 5, id="all slow: over as soon as they can be judged"),
        pytest.param(2.5, 50, 0.0, [0.5] * 50, ENOUGH_STEPS + 1, ENOUGH_STEPS + 3, id="slow: over with enough of them"),
        pytest.param(2.5, 5000, 0.0, [0.01] * 5000, 225, 275, id="fast: over after the seconds"),
        pytest.param(2.5, 5000, 6.0, [0.05] * 500, 108, 132, id="measured as long as it was set up"),
        pytest.param(2.5, 5000, 100.0, [0.1] * 5000, 22.5 * LONGEST, 27.5 * LONGEST, id="a long set-up: not so long"),
        pytest.param(5.0, 50, SETUP_S - 1.0, [SETUP_S / 2.5] * 30, 3, 3, id="no longer warm-up than a set-up"),
        pytest.param(5.0, 50, 0.0, [0.1] * 5 + [0.9 * SETUP_S] * 30, 7, 7, id="ever slower: the deadline stays"),
        pytest.param(5.0, 50, 0.0, [0.1] * 20 + [60.0, 0.1, 0.1], 21, 21, id="slow late: measured"),
        pytest.param(5.0, 10, 100.0, [0.01] * 30, 10, 10, id="all steps of the budget"),
    ],
)
def test_a_side_lasts_for_as_many_steps(
    seconds: float, most: int, setup_s: float, steps_s: list[float], fewest: float, most_steps: float
) -> None:
    side = Side(seconds=seconds, steps=most)
    side.passes(setup_s)
    side.trains(*steps_s)
    assert fewest <= side.steps <= most_steps


@pytest.mark.parametrize("slow", [(60.0,), (60.0, 40.0), (60.0, 0.5, 40.0), (20.0, 20.0, 20.0, 20.0)])
def test_steps_that_compile_take_nothing_from_the_seconds(slow: tuple[float, ...]) -> None:
    """A compiler's first step, a second one for other shapes, and those where it comes back soon."""
    side = Side(seconds=5.0, steps=None)
    assert side.trains(*slow, *[0.5] * 200) == "budget-reached"
    assert 0.5 * (side.steps - len(slow)) == pytest.approx(LONGEST * 5.0, abs=1.0)


def test_a_side_lasts_for_rounds_of_all_its_workers_after_their_warm_up() -> None:
    """As `warmup_rows` has it: their first batches arrive together."""
    few, many = Side(seconds=5.0, steps=None), Side(seconds=5.0, steps=None)
    many.recorder.loaders["a"] = LoaderSetup("a", num_workers=8)
    few.trains(*[0.5] * 100)
    many.trains(*[0.5] * 100)
    assert few.steps == 1 + ENOUGH_STEPS
    assert many.steps == 1 + 8 + WAVES * 8


def test_the_stage_of_a_side_is_named_while_it_lasts() -> None:
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


def test_a_case_reports_the_stage_of_its_trial() -> None:
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, setup_s: float, outcome: str = "completed") -> None:
        self.now, self.setup_s, self.outcome = 0.0, setup_s, outcome
        self.asked, self.left = list[int](), list[float]()
        self.loop = Loop(steps=50, forward=10.0)
        monkeypatch.setattr("gpu_doctor.trials.rounds.time", self)

    def monotonic(self) -> float:
        return self.now

    def once(self, settings: Settings, role: str, steps: int, seconds: float) -> Result:
        self.asked.append(steps)
        self.left.append(seconds)
        one = self.loop.recording()
        whole_s = float(one.steps.wall_s.sum())
        later = {**vars(one.steps), "start_s": one.steps.start_s + self.setup_s}
        self.now += self.setup_s + whole_s
        return Result(Recording(type(one.steps)(**later), duration_s=self.setup_s + whole_s, outcome=self.outcome))

    def rounds(self) -> Rounds:
        kept: Any = Kept()
        return Rounds(self.once, kept, lambda said: None, lambda: False)


def test_two_pairs_are_made_however_long_the_set_up_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=40.0)
    rounds = played.rounds()
    assert [rounds.pair("", {}, {}, 50, 20.0) for _ in range(2)] == [True, False]
    assert played.left == [BLOCK_SHARE * 20.0] * 4


def test_no_pair_begins_that_would_end_after_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=2.0)
    monkeypatch.setattr("gpu_doctor.trials.rounds.goes_on", lambda effect, made: True)
    rounds = played.rounds()
    assert [rounds.pair("", {}, {}, 4, 20.0) for _ in range(3)] == [True, True, False]


def test_the_other_side_gets_as_many_steps_as_the_first_one_made(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=0.0, outcome="budget-reached")
    played.rounds().pair("", {}, {}, 200, 60.0)
    assert played.asked == [200, 50]


def test_many_workers_get_steps_for_some_rounds_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=0.0, outcome="budget-reached")
    played.rounds().pair("", {}, {"num_workers": 16}, 60, 60.0)
    assert played.asked == [WAVES * 16, WAVES * 16], "the 50 steps that the baseline made are too few"


def test_a_side_measures_as_long_as_it_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=2.0, outcome="budget-reached")
    rounds = played.rounds()
    for _ in range(2):
        rounds.pair("", {}, {}, 50, 60.0)
    assert played.asked[2] == pytest.approx(2.0 / float(played.loop.recording().steps.wall_s[-1]), rel=0.1)


def test_runs_that_give_no_answer_become_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, setup_s=0.0)
    rounds = played.rounds()
    for _ in range(2 * LONGER_AFTER + 1):
        rounds.pair("", {}, {}, 50, 600.0)
    assert played.asked[:: 2 * LONGER_AFTER] == [50, 100, 200]


def test_no_second_pair_begins_where_setting_up_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Played(monkeypatch, setup_s=FIRST_S / 2).rounds().pair("", {}, {}, 50, 60.0)
