"""Whether two runs of one training learn the same: their loss curves over the same samples from the same state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Losses, Recording, Setup
from gpu_doctor.trials.compare.batch_scaling import same_batch

SMALL: Final = 0.01
"""Losses below this part of the curve's largest are compared with that part, so that a loss near zero is no drift."""
ROUNDOFF: Final[Mapping[str, float]] = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "tf32": 2.0**-11, "float32": 2.0**-24}
"""Half the distance from 1 to the next larger number of a format: the relative error of one rounding."""
LEEWAY: Final[Mapping[str, float]] = {"bfloat16": 0.25, "float16": 1.0, "tf32": 1.0, "float32": 1.0}
"""After k steps of n operations rounding explains a relative difference of so many roundoffs times sqrt(n * k):
independent errors add up like a random walk (Higham and Mary 2019). The factor is what models of 16 to 676 operations
showed where training did not amplify it (bf16 0.19, fp16 1.0, TF32 0.9, another order of sums
in fp32 0.6). What training amplifies is measured on the loop at hand (trials.nudged)."""
OPERATIONS: Final = 16
"""Of a step, where they were not counted: those of a small model."""
OPERATIONS_A_LAYER: Final = 3
"""So many nodes has the graph of a backward for each layer, about (the same models: 2.4 to 4.8)."""

LIKE: Final = 4.0
"""Losses that lie so many times as far from a baseline run as another one does may be its like. Of runs that differ by
chance alone in every step none in 10 000 lies further apart than that (50 steps, simulated)."""
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


def parity(baseline: Losses, candidate: Losses, dtype: str = "float32", operations: int = OPERATIONS) -> Parity:
    """Compares the losses where both sides have seen the same number of samples (steps, where samples are unknown).

    Args:
        baseline: losses by step.
        candidate: losses by step.
        dtype: the coarsest format that either side computed in.
        operations: of a step's forward.
    """
    steps, ours, theirs = _shared(baseline, candidate)
    if not len(steps):
        return Parity(None, _last(baseline), _last(candidate), dtype=dtype)
    at, there = _places(baseline, candidate)  # by samples, where these are known
    first, last = float(ours[-1]), float(theirs[-1])
    broken = ~np.isfinite(candidate.value) & np.isfinite(np.interp(there, at, baseline.value)) & (there <= at[-1])
    if broken.any():
        return Parity(float("inf"), first, last, BREAKS, 1 + int(candidate.step[broken.argmax()]), dtype)
    if at is baseline.samples and _another_batch(baseline, candidate):
        upper = min(at[-1], there[-1])
        ours, theirs = baseline.value[at <= upper], candidate.value[there <= upper]
        means = [np.array([side[np.isfinite(side)].mean()]) for side in (ours, theirs) if np.isfinite(side).any()]
        return Parity(float(_apart(*means)[0]) if len(means) == 2 else None, first, last, PER_SAMPLE, None, dtype)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not finite.any():
        return Parity(None, first, last, dtype=dtype)
    apart, steps = _apart(ours[finite], theirs[finite]), steps[finite]
    beyond = apart > rounding(dtype, operations) * np.sqrt(steps)
    verdict = DIFFERENT if beyond.any() else ROUNDING if (apart > 0).any() else EQUAL
    return Parity(
        float(apart.max()), first, last, verdict, int(steps[beyond.argmax()]) if beyond.any() else None, dtype
    )


def rounding(dtype: str, operations: int) -> float:
    """The relative difference of two losses that rounding explains after one step; sqrt(k) times that after k."""
    return LEEWAY[dtype] * ROUNDOFF[dtype] * math.sqrt(max(operations, 1))


def usual(bases: Sequence[Losses]) -> float | None:
    """How far runs of the baseline lie from the first of them, at most, relative; None where there is but one."""
    return max((float(np.abs(apart).max()) for _, apart in _from_first(bases)), default=None)


def _from_first(bases: Sequence[Losses]) -> list[tuple[Column, Column]]:
    """How the other runs of the baseline differ from the first one, step by step."""
    return [found for one in bases[1:] if one is not bases[0] and len((found := _differences(bases[0], one))[0])]


def varies(bases: Sequence[Losses], candidate: Losses, dtype: str, operations: int = OPERATIONS) -> bool:
    """Whether runs of the baseline differ from each other, and the candidate's losses by no more than they do.

    A loop that does not repeat itself must not hide a training that was changed: the candidate may lie LIKE times as
    far from the first baseline as the others do, after its first steps, after twice as many and so on, so that it does
    not begin to differ earlier either; and the same holds for the mean difference, which noise takes to nothing and a
    change of the training does not.

    Args:
        bases: losses of the baseline's runs, oldest first, those that were nudged among them (`trials.nudged`).
        candidate: of the other side's first run.
        dtype: the coarsest format that any of them computed in.
        operations: of a step's forward.
    """
    first, known = bases[0], _from_first([bases[0], *(o for o in bases[1:] if not _breaks(bases[0], o))])
    steps, apart = _differences(first, candidate)
    allowed = rounding(dtype, operations)
    if not len(steps) or not any((np.abs(by) > allowed * np.sqrt(at)).any() for at, by in known):
        return False
    last = min(float(steps[-1]), max(float(at[-1]) for at, _ in known))
    marks = [mark for mark in (2.0**power for power in range(EARLY, 31)) if mark < last]
    for mark in (*marks, last):
        likes = [np.abs(by[at <= mark]) for at, by in known]
        like = max([LIKE * float(one.max()) for one in likes if len(one)], default=0.0)
        if (np.abs(apart[steps <= mark]) > max(like, allowed * mark**0.5)).any():
            return False
    ours, others = apart[steps <= last], [by[at <= last] for at, by in known]
    means = [max(abs(float(by.mean())), float(np.sqrt((by**2).mean() / len(by)))) for by in others if len(by)]
    return bool(abs(float(ours.mean())) <= max(LIKE * max(means), allowed * last**0.5))


def _breaks(first: Losses, again: Losses) -> bool:
    return parity(first, again).verdict == BREAKS


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
    """Steps (from 1) of the baseline that both sides have seen, its losses there, and the other's; empty for none."""
    at, there = _places(baseline, other)
    if not len(at) or not len(there):
        return _NONE, _NONE, _NONE
    shared = (at >= there[0]) & (at <= there[-1])
    return 1.0 + baseline.step[shared], baseline.value[shared], np.interp(at[shared], there, other.value)


def _places(baseline: Losses, candidate: Losses) -> tuple[Column, Column]:
    """Where each loss lies on the axis that both sides share: samples seen, or steps where those are unknown."""
    if all(np.isfinite(one.samples).all() for one in (baseline, candidate)):
        return baseline.samples, candidate.samples
    return baseline.step, candidate.step


def coarsest(*recordings: Recording) -> str:
    """The coarsest format in which any of the runs computed: `bfloat16`, `float16`, `tf32` or `float32`."""
    formats = {_format(one.setup, str(one.settings.get("amp", ""))) for one in recordings}
    return max(formats, key=lambda name: ROUNDOFF[name], default="float32")


def operations_of(*recordings: Recording) -> int:
    """Operations of one forward: as many as the backward's graph has nodes, of the run with most.

    A compiled forward is one. By the number of layers where the nodes were not counted.
    """
    setups = [one.setup for one in recordings]
    counted = [one.graph_operations or OPERATIONS_A_LAYER * sum(one.layers.values()) for one in setups]
    return max([OPERATIONS, *counted])


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
    ours, theirs = _samples_a_step(baseline), _samples_a_step(candidate)
    return ours > 0 and theirs > 0 and not same_batch(ours, theirs)


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
