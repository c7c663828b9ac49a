"""Whether two runs of one training learn the same: their loss curves over the same samples from the same state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Losses

SMALL: Final = 0.01
"""Losses below this part of the curve's largest are compared with that part, so that a loss near zero is no drift."""


@dataclass(frozen=True)
class Parity:
    """Two loss curves in three figures."""

    drift: float | None
    """Largest relative difference; inf where only the candidate's loss breaks; None = nothing to compare."""
    baseline: float | None
    """Loss at the last sample count that both sides have seen (its own last one where there is no such)."""
    candidate: float | None


def parity(baseline: Losses, candidate: Losses) -> Parity:
    """Compares the losses where both sides have seen the same number of samples (steps, where samples are unknown)."""
    if not len(baseline.value) or not len(candidate.value):
        return Parity(None, _last(baseline), _last(candidate))
    known = all(np.isfinite(one.samples).all() for one in (baseline, candidate))
    at, there = (baseline.samples, candidate.samples) if known else (baseline.step, candidate.step)
    shared = (at >= there[0]) & (at <= there[-1])
    if not shared.any():
        return Parity(None, _last(baseline), _last(candidate))
    ours, theirs = baseline.value[shared], np.interp(at[shared], there, candidate.value)
    finite = np.isfinite(ours)
    drift = _drift(ours[finite], theirs[finite]) if finite.any() else None
    return Parity(drift, float(ours[-1]), float(theirs[-1]))


def _drift(ours: Column, theirs: Column) -> float:
    if not np.isfinite(theirs).all():
        return float("inf")
    scale = np.maximum(np.abs(ours), max(SMALL * float(np.abs(ours).max()), 1e-12))
    return float(np.max(np.abs(theirs - ours) / scale))


def _last(losses: Losses) -> float | None:
    return float(losses.value[-1]) if len(losses.value) else None
