"""Trials that are short and go well: what follows from a verdict, without the time that one takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_doctor.recording import Settings
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import InKernel


class Faster(InKernel):
    """Makes each trial, of one pair, and calls it twice as fast where the candidate went well."""

    def trials(self, case: Any, candidates: Sequence[Settings], **asked: Any) -> list[Effect]:
        """As in the kernel, and kept so in the case."""
        found = super().trials(case, candidates, **{**asked, "steps": 3, "pairs": 1})
        told = [_twice_as_fast(one) for one in found]
        case.effects[-len(told) :] = told
        return told


def _twice_as_fast(found: Effect) -> Effect:
    if found.outcome not in ("completed", "budget-reached"):
        return found
    return replace(found, verdict="faster", speedup=2.0, low=1.9, high=2.1, reason="", loss_verdict="same")
