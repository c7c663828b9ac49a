"""Whether two runs of one training learn the same: their loss curves over the same samples from the same state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Losses, Recording, Setup

SMALL: Final = 0.01
"""Losses below this part of the curve's largest are compared with that part, so that a loss near zero is no drift."""
ROUNDOFF: Final[Mapping[str, float]] = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "tf32": 2.0**-11, "float32": 2.0**-24}
"""Half the distance from 1 to the next larger number of a format: the relative error of one rounding."""
LEEWAY: Final[Mapping[str, float]] = {"bfloat16": 1.0, "float16": 4.0, "tf32": 4.0, "float32": 4.0}
"""After k steps rounding explains a relative difference of so many roundoffs times sqrt(k): independent errors add up
like a random walk (Higham and Mary 2019), and the factor is what four models under SGD and Adam showed over 50 steps
where training did not amplify it (benchmarks/rounding.py: bf16 0.9, fp16 3.9, another order of sums in fp32 3.7)."""

LIKE: Final = 4.0
"""Losses that lie so many times as far from a baseline run as another one does may be its like. Of runs that differ by
chance alone in every step none in 10 000 lies further apart than that (50 steps, simulated); where training makes one
rounding grow, 1 to 14 % do, by how many directions it grows in, and are then taken for a change."""
EARLY: Final = 3
"""The first look is after 2**3 steps, the next after twice as many, and so on."""
_NONE: Final[Column] = np.empty(0)

EQUAL, ROUNDING, DIFFERENT, BREAKS, PER_SAMPLE = "equal", "within-rounding", "different", "not-finite", "per-sample"


@dataclass(frozen=True)
class Parity:
    """Two loss curves in a verdict and four figures."""

    drift: float | None
    """Largest relative difference; inf where only the candidate's loss breaks; None = nothing to compare. Between
    batches of different size: of the mean losses over the samples that both have seen."""
    baseline: float | None
    """Loss at the last sample count that both sides have seen (its own last one where there is no such)."""
    candidate: float | None
    verdict: str | None = None
    """equal, within-rounding (what `dtype` explains), different, not-finite (NaN or inf on the candidate's side only),
    per-sample (batches of another size: the losses of single steps are no pairs); None = nothing to compare."""
    first_step: int | None = None
    """First step, counted from 1, at which the candidate's loss differs or is not finite; None for other verdicts."""
    dtype: str = ""
    """The coarsest format that either side computed in: bfloat16, float16, tf32 or float32."""


def parity(baseline: Losses, candidate: Losses, dtype: str = "float32") -> Parity:
    """Compares the losses where both sides have seen the same number of samples (steps, where samples are unknown).

    Args:
        baseline, candidate: losses by step. dtype: the coarsest format that either side computed in.
    """
    if not len(baseline.value) or not len(candidate.value):
        return Parity(None, _last(baseline), _last(candidate), dtype=dtype)
    known = all(np.isfinite(one.samples).all() for one in (baseline, candidate))
    at, there = _places(baseline, candidate)
    shared = (at >= there[0]) & (at <= there[-1])
    if not shared.any():
        return Parity(None, _last(baseline), _last(candidate), dtype=dtype)
    ours, theirs = baseline.value[shared], np.interp(at[shared], there, candidate.value)
    first, last = float(ours[-1]), float(theirs[-1])
    broken = ~np.isfinite(candidate.value) & np.isfinite(np.interp(there, at, baseline.value)) & (there <= at[-1])
    if broken.any():
        return Parity(float("inf"), first, last, BREAKS, 1 + int(candidate.step[broken.argmax()]), dtype)
    if known and _another_batch(baseline, candidate):
        upper = min(at[-1], there[-1])
        ours, theirs = baseline.value[at <= upper], candidate.value[there <= upper]
        means = [np.array([side[np.isfinite(side)].mean()]) for side in (ours, theirs) if np.isfinite(side).any()]
        return Parity(float(_apart(*means)[0]) if len(means) == 2 else None, first, last, PER_SAMPLE, None, dtype)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not finite.any():
        return Parity(None, first, last, dtype=dtype)
    apart = _apart(ours[finite], theirs[finite])
    steps = 1 + baseline.step[shared][finite]
    beyond = apart > LEEWAY[dtype] * ROUNDOFF[dtype] * np.sqrt(steps)
    verdict = DIFFERENT if beyond.any() else ROUNDING if (apart > 0).any() else EQUAL
    return Parity(
        float(apart.max()), first, last, verdict, int(steps[beyond.argmax()]) if beyond.any() else None, dtype
    )


def repeats(first: Losses, again: Losses, dtype: str) -> bool:
    """Whether two runs of the same code under the same settings have the same losses, as far as can be seen."""
    return first is again or parity(first, again, dtype).verdict not in (DIFFERENT, BREAKS)


def varies(bases: Sequence[Losses], candidate: Losses, dtype: str) -> bool:
    """Whether runs of the baseline differ from each other, and the candidate's losses by no more than they do.

    A loop that does not repeat itself must not hide a training that was changed: the candidate may lie LIKE times as
    far from the first baseline as the others do, after its first steps, after twice as many and so on, so that it does
    not begin to differ earlier either; and the same holds for the mean difference, which noise takes to nothing and a
    change of the training does not.

    Args:
        bases: losses of the baseline's runs, oldest first. candidate: of the other side's first run.
        dtype: the coarsest format that any of them computed in.
    """
    first, theirs = bases[0], [one for one in bases[1:] if not repeats(bases[0], one, dtype)]
    known = [found for one in theirs if len((found := _differences(first, one))[0])]
    steps, apart = _differences(first, candidate)
    if not known or not len(steps):
        return False
    last = min(float(steps[-1]), max(float(at[-1]) for at, _ in known))
    rounding = LEEWAY[dtype] * ROUNDOFF[dtype]
    marks = [mark for mark in (2.0**power for power in range(EARLY, 31)) if mark < last]
    for mark in (*marks, last):
        likes = [np.abs(by[at <= mark]) for at, by in known]
        allowed = max([LIKE * float(one.max()) for one in likes if len(one)], default=0.0)
        if (np.abs(apart[steps <= mark]) > max(allowed, rounding * mark**0.5)).any():
            return False
    ours, others = apart[steps <= last], [by[at <= last] for at, by in known]
    usual = [max(abs(float(by.mean())), float(np.sqrt((by**2).mean() / len(by)))) for by in others if len(by)]
    return bool(abs(float(ours.mean())) <= max(LIKE * max(usual), rounding * last**0.5))


def _differences(baseline: Losses, other: Losses) -> tuple[Column, Column]:
    """Steps (from 1) of the baseline that both sides have seen, and the other's relative difference there, with its
    sign; empty where there is nothing to compare."""
    at, there = _places(baseline, other)
    if not len(at) or not len(there):
        return _NONE, _NONE
    shared = (at >= there[0]) & (at <= there[-1])
    ours, theirs = baseline.value[shared], np.interp(at[shared], there, other.value)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not finite.any():
        return _NONE, _NONE
    ours, theirs = ours[finite], theirs[finite]
    return 1.0 + baseline.step[shared][finite], np.sign(theirs - ours) * _apart(ours, theirs)


def _places(baseline: Losses, candidate: Losses) -> tuple[Column, Column]:
    """Where each loss lies on the axis that both sides share: samples seen, or steps where those are unknown."""
    if all(np.isfinite(one.samples).all() for one in (baseline, candidate)):
        return baseline.samples, candidate.samples
    return baseline.step, candidate.step


def coarsest(*recordings: Recording) -> str:
    """The coarsest format in which any of the runs computed: `bfloat16`, `float16`, `tf32` or `float32`."""
    formats = {_format(one.setup, str(one.settings.get("amp", ""))) for one in recordings}
    return max(formats, key=lambda name: ROUNDOFF[name], default="float32")


def _format(setup: Setup, amp: str) -> str:
    turned = {"bf16": "bfloat16", "fp16": "float16"}.get(amp, setup.autocast or setup.dtype)
    if turned in ("bfloat16", "float16"):
        return turned
    return "tf32" if setup.device.startswith("cuda") and _tf32(setup) else "float32"


def _tf32(setup: Setup) -> bool:
    """Matrix products in TF32 by torch's switch; convolutions in TF32 are its default on cards that can."""
    products = setup.flags.get("matmul_precision", "highest") != "highest"
    return products or any("Conv" in name for name in setup.layers)


def _another_batch(baseline: Losses, candidate: Losses) -> bool:
    """Whether the steps of the two sides see different numbers of samples."""
    sizes = [_samples_a_step(one) for one in (baseline, candidate)]
    return all(size > 0 for size in sizes) and not 0.99 < sizes[1] / sizes[0] < 1.01


def _samples_a_step(losses: Losses) -> float:
    steps = np.diff(losses.step)
    return float(np.median(np.diff(losses.samples) / steps)) if len(steps) and bool((steps > 0).all()) else 0.0


def _apart(ours: Column, theirs: Column) -> Column:
    """Relative difference of each pair of losses."""
    scale = np.maximum(np.abs(ours), max(SMALL * float(np.abs(ours).max()), 1e-12))
    apart: Column = np.abs(theirs - ours) / scale
    return apart


def _last(losses: Losses) -> float | None:
    return float(losses.value[-1]) if len(losses.value) else None
