"""Sweeps: every combination of a grid is tried, the clearly worse are given up early, bad grids are answered."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

import pytest
import torch

import gpu_doctor
from gpu_doctor.report.searches import places
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect, compare
from gpu_doctor.trials.results import Sweep
from gpu_doctor.trials.searches import combinations
from tests.support.recordings import Loop
from tests.support.small_loop import LOOP, Rows, namespace

CELL = LOOP + "    seen.append(len(x))\n"


def slow() -> dict[str, Any]:
    return namespace(Rows(4000, sleep_s=5e-3), batch=8, seen=[])


FASTER: Final = 2.0
"""The middle, as a factor, between four workers that sleep at the same time and none that does."""


@pytest.mark.alone
def test_a_sweep_finds_the_best_and_spends_less_on_the_worse() -> None:
    space = slow()
    case = gpu_doctor.case(CELL, space)
    before = space["model"].weight.clone()
    found = case.sweep({"num_workers": [0, 4]}, steps=12, seconds=8)
    assert [effect.settings["num_workers"] for effect in found.effects] == [0, 4]
    assert case.effects == [*found.effects, found.again] and found.again is not None
    assert len(case.trials) == 3, "the fastest was measured once more, afresh"
    assert torch.equal(before, space["model"].weight) and space["seen"] == []
    assert space["loader"].num_workers == 0
    assert found.best == {"num_workers": 4}
    assert found.speedup > FASTER
    assert found.effects[0].pairs <= found.effects[1].pairs


def effect(workers: int, speedup: float, low: float, high: float, verdict: str = "faster") -> Effect:
    return Effect(
        {"num_workers": workers, "batch_size": 64},
        {},
        speedup,
        low,
        high,
        verdict,
        candidate_samples_per_s=100 * speedup,
    )


def test_the_table_says_what_is_best_what_ties_and_what_changes_the_training() -> None:
    worse = effect(0, 1.0, 0.97, 1.03, "no-difference")
    failed = Effect({"num_workers": 8, "batch_size": 64}, outcome="failed", reason="ValueError: no")
    tried = (worse, effect(2, 2.4, 2.2, 2.6), effect(4, 2.5, 2.3, 2.7), failed)
    found = Sweep(tried, again=effect(4, 2.35, 2.2, 2.5))
    assert (found.best, found.speedup) == ({"num_workers": 4, "batch_size": 64}, 2.35)
    assert found.ties == ({"num_workers": 2, "batch_size": 64},)
    text = str(found)
    lines = text.splitlines()
    assert lines[0].startswith("Sweep of 4 combinations: num_workers=4, ")
    assert "batch_size=64 is best, 2.35x (2.2-2.5)" in lines[0]
    assert lines[1].split() == ["num_workers", "batch_size", "samples/s", "vs", "the", "code", "as", "written"]
    assert lines[2].endswith("best") and lines[2].split()[:3] == ["4", "64", "250"]
    assert "ValueError: no" in lines[5]
    assert "than the best: num_workers=2, batch_size=64" in text
    assert "batch_size changes the training" in text and "num_workers changes" not in text
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["best"] == {"num_workers": 4, "batch_size": 64}
    assert [one["outcome"] for one in plain["effects"]] == ["completed"] * 3 + ["failed"]


def test_only_what_was_measured_again_is_best() -> None:
    """The fastest of many is a lucky one, too."""
    lucky = effect(4, 1.08, 1.02, 1.14)
    ended = Sweep((lucky,), stopped=True)
    assert (ended.best, ended.speedup, ended.found) == ({}, 1.0, None)
    assert "num_workers=4, batch_size=64 came out fastest" in ended.headline and "not measured again" in ended.headline
    found = Sweep((lucky,), again=effect(4, 1.01, 0.97, 1.05, "no-difference"))
    assert (found.best, found.speedup, found.ties) == ({}, 1.0, ())
    assert "again did not confirm" in found.headline
    assert any(one.startswith("Measured again: num_workers=4, batch_size=64") for one in found.notes)
    assert not any(one.best for one in places(found))


BROKEN: dict[str, Any] = {"loss_drift": float("inf"), "loss_verdict": "not-finite", "loss_first_step": 3}


def test_settings_whose_losses_break_are_never_the_best_and_differing_losses_are_said() -> None:
    broken = dataclasses.replace(effect(4, 2.5, 2.3, 2.7), **BROKEN)
    differing: dict[str, Any] = {"loss_drift": 0.2, "loss_verdict": "different", "loss_first_step": 7}
    slower = dataclasses.replace(effect(2, 2.4, 2.2, 2.6), **differing)
    found = Sweep((broken, slower), again=slower)
    assert found.best == {"num_workers": 2, "batch_size": 64} and found.ties == ()
    lines = str(found).splitlines()
    assert lines[2].endswith("loss becomes NaN or infinite from step 3 on")
    assert lines[3].endswith("best") and "loss differs from step 7 on, by up to 20 %" in lines[3]
    first, second = places(found)[1:]
    assert "loss becomes NaN or infinite" in first.said and not first.faster and not first.best
    assert "loss differs from step 7 on" in second.said and second.faster and second.best
    assert (Sweep((broken,)).best, Sweep((broken,)).speedup) == ({}, 1.0)


def test_what_the_trials_of_a_sweep_left_behind_is_said_once() -> None:
    left = ("a trial cannot put back: it (generator)",)
    effects = [dataclasses.replace(effect(n, 1.0, 0.97, 1.03), not_restored=left) for n in (0, 2)]
    text = str(Sweep(tuple(effects)))
    assert text.count("A trial cannot put back: it (generator).") == 1


def test_where_nothing_is_faster_the_code_as_written_is_best() -> None:
    found = Sweep((effect(2, 1.04, 0.98, 1.1, "inconclusive"), effect(4, 0.8, 0.7, 0.9, "slower")))
    assert (found.best, found.speedup, found.ties) == ({}, 1.0, ())
    assert "none is clearly faster" in str(found)


def entry(workers: int, step_s: float) -> race.Entry:
    base = Loop(steps=60, wait=30.0).recording()
    return race.Entry(
        {"num_workers": workers},
        [base],
        [Loop(steps=60, wait=1e3 * step_s, settings={"num_workers": workers}).recording()],
    )


def test_only_what_is_clearly_worse_is_dropped() -> None:
    entries = [entry(0, 0.030), entry(2, 0.0100), entry(4, 0.0101)]
    race.drop_the_worse(entries)
    assert [one.going for one in entries] == [False, True, True]
    assert entries[0].dropped.startswith("stopped after 1 pair of runs: num_workers=2")


def test_settings_whose_losses_break_drop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(0, 0.030), entry(2, 0.0150), entry(4, 0.0100)]

    def breaking(bases: Any, candidates: Any) -> Effect:
        found = compare(bases, candidates)
        return dataclasses.replace(found, **BROKEN) if found.settings["num_workers"] == 4 else found

    monkeypatch.setattr(race, "compare", breaking)
    race.drop_the_worse(entries)
    assert [one.going for one in entries] == [False, True, True]
    assert "num_workers=2 is clearly faster" in entries[0].dropped


def test_a_lone_candidate_and_one_without_an_interval_are_not_dropped() -> None:
    lone = [entry(0, 0.03)]
    race.drop_the_worse(lone)
    assert lone[0].going
    short = entry(0, 0.03)
    short.bases, short.candidates = [Loop(steps=4).recording()], [Loop(steps=4).recording()]
    race.drop_the_worse([short, entry(4, 0.001)])
    assert short.going


@pytest.mark.parametrize(
    ("grid", "error", "said"),
    [
        ({}, ValueError, "at least one knob"),
        ({"num_workers": []}, ValueError, "num_workers has no values"),
        ({"num_wokers": [1]}, ValueError, "num_workers"),
        ({"num_workers": 4}, TypeError, "are a list"),
        ({"amp": "bf16"}, TypeError, "are a list"),
        ([("num_workers", [1])], TypeError, "dict of knobs"),
        ({"num_workers": [0, 1, 2], "batch_size": [1, 2]}, ValueError, "6 combinations, and a sweep takes 5"),
    ],
)
def test_a_bad_grid_is_answered_in_a_sentence(grid: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        gpu_doctor.case("1 + 1").sweep(grid, max_trials=5)


def test_a_value_given_twice_counts_once() -> None:
    assert combinations({"num_workers": (2, 2, 0), "pin_memory": [True]}, 2) == [
        {"num_workers": 2, "pin_memory": True},
        {"num_workers": 0, "pin_memory": True},
    ]


def test_a_stop_ends_the_sweep_and_keeps_what_it_has() -> None:
    space = slow()
    case = gpu_doctor.case(CELL, space)
    rounds: list[str] = []
    say = case.say

    def saying(progress: str) -> None:
        rounds.append(progress)
        if progress.startswith("num_workers=2: round 1") and progress.endswith("candidate"):
            case.stop()
        say(progress)

    case.say = saying  # type: ignore[method-assign]
    found = case.sweep({"num_workers": [0, 2, 4]}, steps=5, seconds=10)
    assert case.sweeps == [found]
    assert found.stopped and "stopped early" in str(found)
    assert [one.outcome for one in found.effects][1:] == ["stopped", "stopped"]
    assert found.effects[0].speedup is not None
    assert not any(progress.startswith("num_workers=4") for progress in rounds)


def test_an_interrupt_passes_on_and_leaves_the_sweep_so_far() -> None:
    space = slow()
    case = gpu_doctor.case(CELL, space)
    say = case.say

    def interrupting(progress: str) -> None:
        if progress.startswith("num_workers=2: round 1") and progress.endswith("candidate"):
            raise KeyboardInterrupt
        say(progress)

    case.say = interrupting  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        case.sweep({"num_workers": [0, 2, 4]}, steps=5, seconds=10)
    (found,) = case.sweeps
    assert found.stopped and [one.settings["num_workers"] for one in found.effects] == [0, 2]
    assert found.effects[0].speedup is not None and found.effects[1].speedup is None
    assert case.effects == list(found.effects)
    assert space["seen"] == []
