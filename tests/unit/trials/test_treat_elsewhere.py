"""What a treatment asks of an executor: one move at a time, and so many pairs."""

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

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []

    def trials(self, case: Any, candidates: Sequence[Settings], **asked: Any) -> list[Effect]:
        self.batches.append((len(candidates), asked["pairs"]))
        return super().trials(case, candidates, **asked)


class Plain:
    """Somebody's own, which knows no bound of pairs."""

    def trials(
        self, case: Case, candidates: Sequence[Settings], *, steps: int, seconds: float, against: Settings
    ) -> list[Effect]:
        return [case.trial(one, steps=steps, seconds=seconds, against=against) for one in candidates]


def test_its_trials_take_six_pairs_at_most_and_come_one_by_one() -> None:
    executor = Asked()
    plan = case_of(COSTLY).treat(8, steps=50, executor=executor)
    assert plan.speedup > 1.5
    assert all(pairs == treat.PAIRS == 6 for _, pairs in executor.batches[:-1])
    assert executor.batches[-1] == (1, MOST_PAIRS), "the last one goes on until it is clear"
    assert {count for count, _ in executor.batches} == {1}


def test_without_an_executor_they_take_six_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    tried = race.tried

    def watched(case: Runner, settings: Settings, **given: Any) -> Effect:
        asked.append(given["pairs"])
        return tried(case, settings, **given)

    monkeypatch.setattr(race, "tried", watched)
    case_of(DECODING).treat(3, steps=50)
    assert asked == [6, 6, MOST_PAIRS]


def test_an_executor_that_knows_no_bound_is_asked_without() -> None:
    plan = case_of(COSTLY).treat(8, steps=50, executor=Plain())  # type: ignore[arg-type]
    assert plan.speedup > 1.5 and len(plan.effects) > 1
    found = case_of(COSTLY).sweep({"fused_optimizer": [True, False]}, steps=50, executor=Plain())  # type: ignore[arg-type]
    assert found.best == {"fused_optimizer": True}
