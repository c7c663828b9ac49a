"""Trials that are short and go well: what follows from a verdict, without the time that one takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect


def make_trials_faster(patch: pytest.MonkeyPatch) -> None:
    """Makes each trial of a treatment, of one pair, and calls it twice as fast where the candidate went well."""
    tried = race.tried

    def once(case: Any, settings: Any, **asked: Any) -> Effect:
        case.effects[-1:] = [_twice_as_fast(tried(case, settings, **{**asked, "steps": 3, "pairs": 1}))]
        return case.effects[-1]  # type: ignore[no-any-return]

    patch.setattr(race, "tried", once)


def _twice_as_fast(found: Effect) -> Effect:
    if found.outcome not in ("completed", "budget-reached"):
        return found
    return replace(found, verdict="faster", speedup=2.0, low=1.9, high=2.1, reason="", loss_verdict="same")
