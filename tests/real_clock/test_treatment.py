"""A treatment comes near the best of a grid with a third of its trials, and a wide executor tries several at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpu_doctor.recording import Settings, SettingValue
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.compare.effect import Effect
from tests.support.training_worlds import DECODING, WORLDS, case_of

pytestmark = pytest.mark.slow

GRID: dict[str, tuple[SettingValue, ...]] = {
    "num_workers": (0, 1, 2, 4, 8, 16),
    "prefetch_factor": (2, 16),
    "persistent_workers": (False, True),
    "fused_optimizer": (False, True),
    "threads": (1, 2),
}


def grid() -> list[dict[str, SettingValue]]:
    """Every combination that torch takes."""
    found: list[dict[str, SettingValue]] = [{}]
    for name, values in GRID.items():
        found = [{**one, name: value} for one in found for value in values]
    return [
        one for one in found if one["num_workers"] or (one["prefetch_factor"] == 2 and not one["persistent_workers"])
    ]


@pytest.mark.parametrize("name", WORLDS)
def test_it_reaches_95_percent_of_the_best_of_a_grid_with_a_third_of_its_trials(name: str) -> None:
    world = WORLDS[name]
    best = max(world.rate(one, 360) for one in grid())
    plan = case_of(world).treat(steps=50)
    assert world.rate(plan.settings, 360) >= 0.95 * best, str(plan)
    assert len(plan.effects) <= len(grid()) / 3
    assert plan.speedup == pytest.approx(world.rate(plan.settings, 360) / world.rate({}, 360), rel=0.25)


class Wide:
    """An executor of three places, that says what it was asked at once."""

    width = 3

    def __init__(self) -> None:
        self.batches: list[list[dict[str, SettingValue]]] = []

    def trials(
        self,
        case: Case,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
    ) -> list[Effect]:
        self.batches.append([dict(one) for one in candidates])
        return [case.trial(one, steps=steps, seconds=seconds, against=against) for one in candidates]


def test_a_wide_executor_tries_several_at_once_and_the_best_is_kept() -> None:
    executor, case = Wide(), case_of(DECODING)
    plan = case.treat(12, steps=50, executor=executor)  # type: ignore[arg-type]
    assert max(map(len, executor.batches)) > 1
    assert len(executor.batches[0]) == len({tuple(sorted(one.items())) for one in executor.batches[0]})
    assert DECODING.rate(plan.settings) >= 0.95 * max(DECODING.rate(one) for one in grid())
    first = plan.effects[: len(executor.batches[0])]
    gained = [one for one in first if one.verdict == "faster"]
    assert plan.waterfall[1].gain == max(one.speedup or 0.0 for one in gained)
    assert len(plan.effects) == sum(map(len, executor.batches)) <= 12
