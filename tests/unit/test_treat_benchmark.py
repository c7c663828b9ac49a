"""`benchmarks/treat.py` judges rightly: its grid is whole, its search finds the best, its bars are what they say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks.grid import Budget, Config, finals, grid_of, rate, searched
from gpu_doctor.recording import Recording, Steps
from tests.support.training_worlds import World, recorded

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


def test_steps_whose_batches_were_fetched_ahead_are_paid_for() -> None:
    held_up_then_fast = Steps.of(wall_s=[0.2, *[0.03] * 10, *[0.01] * 20], samples=[32.0] * 31)
    assert rate(Recording(held_up_then_fast)) == pytest.approx(30 * 32 / 0.5)


def test_a_run_that_failed_or_came_to_too_few_steps_has_no_rate() -> None:
    steps = Steps.of(wall_s=[0.01] * 30, samples=[32.0] * 30)
    assert rate(Recording(steps)) == pytest.approx(3200.0, rel=0.01)
    assert rate(Recording(steps, outcome="failed")) == 0.0
    assert rate(Recording(Steps.of(wall_s=[0.01] * 4, samples=[32.0] * 4))) == 0.0
