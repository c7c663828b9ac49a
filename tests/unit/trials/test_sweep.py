"""What a sweep found, told: what is best, what ties, what is said while it goes on; bad grids are answered."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.report.searches import rows
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.results import RUNNING, WAITING, Sweep
from gpu_doctor.trials.searches import combinations


def effect(workers: int, speedup: float, low: float, high: float, verdict: str = "faster") -> Effect:
    settings = {"num_workers": workers, "batch_size": 64}
    return Effect(settings, {}, speedup, low, high, verdict, candidate_samples_per_s=100 * speedup)


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
    assert not any(one.best for one in rows(found))


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
    first, second = rows(found)[1:]
    assert "loss becomes NaN or infinite" in first.losses and not first.faster and not first.best
    assert "loss differs from step 7 on" in second.losses and second.faster and second.best
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


def test_while_it_goes_on_each_row_says_how_far_it_is_in_the_order_of_the_grid() -> None:
    early = dataclasses.replace(effect(2, 1.3, 1.2, 1.4), reason="stopped early after 2 pairs of runs")
    there = dataclasses.replace(effect(4, 2.0, 1.9, 2.1), device="CPU, 4 cores on node-7", elsewhere=True)
    waiting = Effect({"num_workers": 8}, outcome=WAITING)
    running = dataclasses.replace(effect(1, 1.1, 1.0, 1.2), outcome=RUNNING)
    found = Sweep((waiting, running, early, there))
    assert found.running and found.headline.endswith("2 decided so far")
    told = rows(found)[1:]
    assert [one.state for one in told] == ["waiting", "running", "stopped early", "measured"]
    assert told[0].rate == told[0].gain == "" and told[1].rate == "110 samples/s"
    assert told[3].gain == "2.00x (1.9-2.1) faster"
    assert "node-7" in told[3].note and told[3].note.endswith("not on this machine")
    assert not Sweep((early, there)).running
