"""What a treatment asks of an executor: pairs, moves tried at once, and what was given up among these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpu_doctor.recording import Settings
from gpu_doctor.trials import race, treat
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import InKernel
from gpu_doctor.trials.rounds import MOST_PAIRS
from gpu_doctor.trials.runner import Runner
from tests.support.training_worlds import DECODING, World, case_of

COSTLY = World(computes=4, trains=2, updates=12)


class Asked(InKernel):
    """Keeps what it was asked for."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.batches: list[tuple[int, int]] = []

    def trials(self, case: Any, candidates: Sequence[Settings], **asked: Any) -> list[Effect]:
        self.batches.append((len(candidates), asked["pairs"]))
        return super().trials(case, candidates, **asked)


class Plain:
    """Somebody's own, which knows no bound of pairs."""

    width = 3

    def trials(
        self, case: Case, candidates: Sequence[Settings], *, steps: int, seconds: float, against: Settings
    ) -> list[Effect]:
        return [case.trial(one, steps=steps, seconds=seconds, against=against) for one in candidates]


@pytest.mark.parametrize("width", [1, 4])
def test_its_trials_take_six_pairs_at_most(width: int) -> None:
    executor = Asked(width)
    plan = case_of(COSTLY).treat(8, steps=50, executor=executor)
    assert plan.speedup > 1.5
    assert all(pairs == treat.PAIRS == 6 for _, pairs in executor.batches[:-1])
    assert executor.batches[-1] == (1, MOST_PAIRS), "the last one goes on until it is clear"
    assert (max(count for count, _ in executor.batches) > 1) == (width > 1)


def test_without_an_executor_they_take_six_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    tried = race.tried

    def watched(case: Runner, candidates: Sequence[Settings], **given: Any) -> list[Effect]:
        asked.append(given["pairs"])
        return tried(case, candidates, **given)

    monkeypatch.setattr(race, "tried", watched)
    case_of(DECODING).treat(3, steps=50)
    assert asked == [6, 6, MOST_PAIRS]


def test_an_executor_that_knows_no_bound_is_asked_without() -> None:
    plan = case_of(COSTLY).treat(8, steps=50, executor=Plain())  # type: ignore[arg-type]
    assert plan.speedup > 1.5 and len(plan.effects) > 1
    found = case_of(COSTLY).sweep({"fused_optimizer": [True, False]}, steps=50, executor=Plain())  # type: ignore[arg-type]
    assert found.best == {"fused_optimizer": True}


class Racing:
    """Gives the first of a batch a gain and gives the others up, or the first one's losses break."""

    width = 2

    def __init__(self, breaks: bool) -> None:
        self.breaks = breaks
        self.batches: list[list[dict[str, Any]]] = []

    def trials(self, case: Any, candidates: Sequence[Settings], **asked: Any) -> list[Effect]:
        against = asked["against"]
        self.batches.append([dict(one) for one in candidates])
        first = Effect(
            candidates[0],
            against,
            *(3.0, 2.8, 3.2, "faster"),
            outcome="budget-reached",
            loss_drift=float("inf") if self.breaks and len(self.batches) == 1 else 0.0,
            loss_verdict="not-finite" if self.breaks and len(self.batches) == 1 else "same",
        )
        given_up = "stopped: another is clearly faster"
        others = [
            Effect(one, against, 1.2, 0.8, 1.8, outcome="budget-reached", reason=given_up) for one in candidates[1:]
        ]
        case.effects += [first, *others]
        return [first, *others]


def turned(batch: dict[str, Any], kept: dict[str, Any]) -> set[str]:
    return {name for name, value in batch.items() if kept.get(name) != value}


def test_what_was_given_up_for_a_better_one_is_no_failure_and_is_tried_on_top_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpu_doctor.trials.candidates.TRIES_A_KNOB", 1)  # a single failure would bar it
    executor = Racing(breaks=False)
    case_of(COSTLY).treat(6, steps=50, executor=executor)
    (_, second), later = executor.batches[0], [one for batch in executor.batches[1:] for one in batch]
    assert any(second.items() < one.items() for one in later), "beside what was gained since"


def test_what_was_given_up_for_one_that_cannot_be_kept_has_its_turn_again() -> None:
    executor = Racing(breaks=True)
    plan = case_of(COSTLY).treat(6, steps=50, executor=executor)
    (first, second), later = executor.batches[0], executor.batches[1:]
    assert not any(first in batch for batch in later), "its losses break: that is final"
    assert second in later[0]
    assert plan.settings and not turned(second, dict(plan.settings))
