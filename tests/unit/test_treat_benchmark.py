"""`benchmarks/treat.py` judges rightly: its grid is whole, its search finds the best, its bars are what they say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks.grid import AXES, Budget, Clock, Config, duel, finals, grid_of, rate, searched
from benchmarks.treat import Row, curable, reached, totals
from gpu_doctor.recording import Recording, Steps
from tests.support.recordings import Loop
from tests.support.training_worlds import World, WorldCase, recorded

ADAM_LOADER = recorded(World(), {}, 30, np.random.default_rng(0)).setup


def test_the_grid_is_every_combination_that_torch_takes_once() -> None:
    grid = grid_of(ADAM_LOADER)
    assert {} in grid
    assert len(grid) == len({tuple(sorted(one.items())) for one in grid})
    workers = [2**power for power in range(4)]  # on two cores up to eight
    whole = list(itertools.product(workers, (2, 16), (False, True), (False, True)))
    assert len(grid) == len(whole) + 2  # and without workers, fused or not
    assert {"num_workers": 8, "prefetch_factor": 16, "persistent_workers": True, "fused_optimizer": True} in grid
    assert all(one.get("num_workers") for one in grid if "prefetch_factor" in one or "persistent_workers" in one)


def test_a_loop_without_a_loader_has_a_grid_of_what_computes() -> None:
    facts = ADAM_LOADER.optimizer_facts
    setup = Loop(has_loader=False, cores=2.0, setup={"torch_threads": 16, "optimizer_facts": facts}).recording().setup
    grid = grid_of(setup, AXES)
    assert {frozenset(one) for one in grid} == {
        frozenset(one) for one in ((), ("threads",), ("fused_optimizer",), ("threads", "fused_optimizer"))
    }
    assert len(grid) == 6


def machine(rates: dict[int, float], drift: float = 0.0, noise: float = 0.0) -> Any:
    """A timer: samples/s by the number of workers, on a machine that slows down from run to run."""
    rng, runs = np.random.default_rng(0), itertools.count()

    def timed(settings: Config, steps: int, seconds: float) -> float:
        mood = (1 - drift) ** next(runs) * float(np.exp(rng.normal(0, noise)))
        return rates[int(settings.get("num_workers", 0))] * mood

    return timed


def test_the_search_finds_the_best_on_a_machine_that_slows_down_meanwhile() -> None:
    rates = {n: 100.0 + 10 * n - 0.6 * n * n for n in range(17)}
    grid: list[Config] = [{"num_workers": n} if n else {} for n in rates]
    ranked = searched(machine(rates, drift=0.01, noise=0.01), grid, Budget())
    best = max(rates, key=lambda n: rates[n])
    assert rates[int(ranked[0].get("num_workers", 0))] >= 0.97 * rates[best]
    speeds = finals(machine(rates, drift=0.01), [ranked[0], {}], Budget(rounds=6))
    assert speeds[0] / speeds[1] == pytest.approx(rates[best] / 100.0, rel=0.03)


def test_a_duel_knows_who_is_who_on_a_machine_that_slows_down_meanwhile() -> None:
    clock = machine({1: 100.0, 2: 80.0}, drift=0.02)
    shares = duel(clock, {"num_workers": 1}, {"num_workers": 2}, Budget())
    assert len(shares) == Budget().rounds and float(np.mean(shares)) == pytest.approx(1.25, rel=0.005)
    wild = machine({1: 100.0, 2: 80.0}, noise=0.3)
    assert len(duel(wild, {"num_workers": 1}, {"num_workers": 2}, Budget())) == Budget().duels


def test_steps_whose_batches_were_fetched_ahead_are_paid_for() -> None:
    held_up_then_fast = Steps.of(wall_s=[0.2, *[0.03] * 10, *[0.01] * 20], samples=[32.0] * 31)
    assert rate(Recording(held_up_then_fast)) == pytest.approx(30 * 32 / 0.5)


def test_a_run_that_failed_or_came_to_too_few_steps_has_no_rate() -> None:
    steps = Steps.of(wall_s=[0.01] * 30, samples=[32.0] * 30)
    assert rate(Recording(steps)) == pytest.approx(3200.0, rel=0.01)
    assert rate(Recording(steps, outcome="failed")) == 0.0
    assert rate(Recording(Steps.of(wall_s=[0.01] * 4, samples=[32.0] * 4))) == 0.0


def test_the_clock_puts_everything_back_and_does_not_tell_the_case() -> None:
    case = WorldCase(World())
    clock = Clock(case)
    assert clock({"num_workers": 1}, 20, 1.0) > 0
    assert case.namespace["weights"].tolist() == [0.0, 0.0, 0.0]
    assert case.recordings == [] and case.trials == [] and case.effects == []


def test_the_bars() -> None:
    good = Row("good", grid=33, share=0.97, trials=5, best_speedup=2.0, speedup=1.94, seconds={"treat": 1.0})
    small = Row("small", grid=3, share=1.0, trials=2, best_speedup=2.0, speedup=2.0, seconds={"treat": 1.0})
    slow = Row("slow", grid=33, share=0.94, trials=5, best_speedup=2.0, speedup=1.88, seconds={"treat": 1.0})
    assert reached([good, small])
    assert not reached([good, slow])
    assert not reached([small])
    assert not reached([good, Row("failed", error="FAILED: no")])
    assert "1 of 2 cells" in totals([good, slow]) and "within a third of its own grid in 1 of 2" in totals(
        [good, small]
    )
    assert "5 of 33" in good.line() and "97 %" in good.line()


def test_the_cells_are_those_that_settings_cure() -> None:
    names = {one.name for one in curable()}
    assert {"sleeping-dataset", "short-epochs-restart-workers", "adamw-over-many-small-layers"} <= names
    assert not any(one.healthy for one in curable())
    assert "json-lines-in-a-collate" not in names
