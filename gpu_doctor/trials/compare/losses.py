"""True if two runs of one training learn the same: their loss curves over the same samples from the same state.

There are three verdicts: the losses are the same, they differ by so many percent, or the candidate's become NaN or
infinite. How far the losses of this loop lie apart by themselves is read off the baselines of the same trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.formatting import share
from gpu_doctor.recording import Column, Losses

SMALL: Final = 0.01
"""Losses below this part of the curve's largest are compared with that part, so that a loss near zero is no drift."""
NEAR: Final = 0.02
"""Curves that lie no further apart, relative, are of the same training: rounding in another order or another format
moves the losses of some fifty steps by less."""
LIKE: Final = 4.0
"""Losses that lie so many times as far from a baseline run as another one does may be its like. Of runs that differ by
chance alone in every step none in 10 000 lies further apart than that (50 steps, simulated)."""
EARLY: Final = 3
"""The first look is after 2**3 steps, the next after twice as many, and so on."""
_NONE: Final[Column] = np.empty(0)

SAME, DIFFERENT, BREAKS = "same", "different", "not-finite"


@dataclass(frozen=True)
class Parity:
    """The comparison of two loss curves: a verdict and four figures."""

    drift: float | None
    """Largest relative difference; inf where only the candidate's loss breaks; None = nothing to compare. Between
    batches of different size: of the mean losses over the samples that both have seen."""
    baseline: float | None
    """Loss at the last sample count that both sides have seen (its own last one where there is no such)."""
    candidate: float | None
    verdict: str | None = None
    """same, different, not-finite (NaN or inf on the candidate's side only); None = nothing to compare, or batches of
    another size, where the losses of single steps are no pairs."""
    first_step: int | None = None
    """First step, counted from 1, at which the candidate's loss differs or is not finite; None for other verdicts."""


def parity(bases: Sequence[Losses], candidate: Losses, same_batch: bool = True) -> Parity:
    """Compares the losses where both sides have seen the same number of samples (steps, where samples are unknown).

    Args:
        bases: losses of the baseline's runs, the one beside the candidate first.
        candidate: losses of the candidate.
        same_batch: both sides see the same number of samples a step.
    """
    baseline = bases[0]
    steps, ours, theirs = _shared(baseline, candidate)
    if not len(steps):
        return Parity(None, _last(baseline), _last(candidate))
    ends = float(ours[-1]), float(theirs[-1])
    at, there = _places(baseline, candidate)
    broken = ~np.isfinite(candidate.value) & np.isfinite(np.interp(there, at, baseline.value)) & (there <= at[-1])
    if broken.any():
        return Parity(float("inf"), *ends, BREAKS, 1 + int(candidate.step[broken.argmax()]))
    if at is baseline.samples and not same_batch:
        upper = min(at[-1], there[-1])
        return Parity(_means_apart(baseline.value[at <= upper], candidate.value[there <= upper]), *ends)
    steps, apart = _differences(baseline, candidate)
    if not len(steps):
        return Parity(None, *ends)
    drift = float(np.abs(apart).max())
    if drift <= NEAR or _is_like(bases, steps, apart):
        return Parity(drift, *ends, SAME)
    return Parity(drift, *ends, DIFFERENT, int(steps[(np.abs(apart) > NEAR).argmax()]))


def spread(bases: Sequence[Losses]) -> float | None:
    """Returns the largest relative difference of the baseline's runs from the first; None for a single run."""
    return max((float(np.abs(apart).max()) for _, apart in _from_first(bases)), default=None)


def _from_first(bases: Sequence[Losses]) -> list[tuple[Column, Column]]:
    """Returns how each other run of the baseline differs from the first, step by step."""
    return [found for base in bases[1:] if len((found := _differences(bases[0], base))[0])]


def _is_like(bases: Sequence[Losses], steps: Column, apart: Column) -> bool:
    """True if a candidate differs from the first baseline by no more than the other baselines do.

    A loop that does not repeat itself must not hide a training that was changed: the candidate may lie LIKE times as
    far from the first baseline as the others do, after its first steps, after twice as many and so on, so that it does
    not begin to differ earlier either; and the same holds for the mean difference, which noise takes to nothing and a
    change of the training does not.

    Args:
        bases: losses of the baseline's runs.
        steps: step numbers of the first baseline, counted from 1.
        apart: difference of the candidate from it at these steps, with its sign.
    """
    others = _from_first(bases)
    if not others:
        return False
    last = min(float(steps[-1]), max(float(at[-1]) for at, _ in others))
    marks = [mark for mark in (2.0**power for power in range(EARLY, 31)) if mark < last]
    for mark in (*marks, last):
        known = max((float(np.abs(by[at <= mark]).max(initial=0.0)) for at, by in others), default=0.0)
        if np.abs(apart[steps <= mark]).max(initial=0.0) > max(LIKE * known, NEAR):
            return False
    likes = [by[at <= last] for at, by in others]
    means = [max(abs(float(by.mean())), float(np.sqrt((by**2).mean() / len(by)))) for by in likes if len(by)]
    return bool(abs(float(apart[steps <= last].mean())) <= max(LIKE * max(means), NEAR))


def _differences(baseline: Losses, other: Losses) -> tuple[Column, Column]:
    """Steps (from 1) of the baseline that both sides have seen, and the other's relative difference there.

    The difference has its sign; both are empty where there is nothing to compare.
    """
    steps, ours, theirs = _shared(baseline, other)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not finite.any():
        return _NONE, _NONE
    ours, theirs = ours[finite], theirs[finite]
    return steps[finite], np.sign(theirs - ours) * _apart(ours, theirs)


def _shared(baseline: Losses, other: Losses) -> tuple[Column, Column, Column]:
    """Returns the baseline's steps (from 1) that both sides have seen, with the losses of both; empty for none."""
    at, there = _places(baseline, other)
    if not len(at) or not len(there):
        return _NONE, _NONE, _NONE
    shared = (at >= there[0]) & (at <= there[-1])
    return 1.0 + baseline.step[shared], baseline.value[shared], np.interp(at[shared], there, other.value)


def _places(baseline: Losses, candidate: Losses) -> tuple[Column, Column]:
    """Returns each loss's place on the shared axis: samples seen, or steps if these are unknown."""
    if all(np.isfinite(losses.samples).all() for losses in (baseline, candidate)):
        return baseline.samples, candidate.samples
    return baseline.step, candidate.step


def _means_apart(ours: Column, theirs: Column) -> float | None:
    """Relative difference of the means of the losses that are numbers; None where a side has none."""
    means = [np.array([side[np.isfinite(side)].mean()]) for side in (ours, theirs) if np.isfinite(side).any()]
    return float(_apart(*means)[0]) if len(means) == 2 else None


def _apart(ours: Column, theirs: Column) -> Column:
    """Relative difference of each pair of losses."""
    scale = np.maximum(np.abs(ours), max(SMALL * float(np.abs(ours).max()), 1e-12))
    apart: Column = np.abs(theirs - ours) / scale
    return apart


def _last(losses: Losses) -> float | None:
    return float(losses.value[-1]) if len(losses.value) else None


def loss_words(
    verdict: str | None,
    drift: float | None,
    first_step: int | None = None,
    alone: float | None = None,
) -> str:
    """Says how the losses of a trial compare, by their verdict; empty if there is nothing to compare.

    Args:
        verdict: value of `Effect.loss_verdict`.
        drift: the largest relative difference; None = not known.
        first_step: step from which the losses differ; None = they do not.
        alone: largest relative difference among runs without the change.
    """
    if verdict == SAME and not drift:
        return "loss the same in every step"
    if verdict == DIFFERENT and drift is not None:
        own = "" if alone is None else f"; this loop alone by {_bound(alone)}"
        return f"loss differs from step {first_step} on, by {_bound(drift)}{own}"
    if verdict == BREAKS:
        return f"loss becomes NaN or infinite from step {first_step} on"
    if drift is None or math.isnan(drift):
        return ""
    if math.isinf(drift):
        return "loss becomes NaN or infinite"
    return "loss same" if drift < 1e-6 else f"loss within {share(max(drift, 1e-3))}"


def _bound(drift: float) -> str:
    """`up to 0.3 %`, `less than 0.1 %`."""
    return "less than 0.1 %" if drift < 1e-3 else f"up to {share(drift)}"
