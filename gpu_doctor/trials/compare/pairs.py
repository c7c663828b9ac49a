"""Selects the rows of two runs that are compared, and the pairs of runs that are fair.

Both sides of a trial begin in the same state, so they draw the same samples, and the very first side is a baseline. The
candidate finds in the page cache what that baseline read from the storage, and is faster for it, whatever it changes.
Alternating the order does not help: later pairs find everything in the cache. So a pair is left out if one side read
clearly more from the storage than the warmest side of the trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from gpu_doctor.diagnosis import paced_s, warmup_rows
from gpu_doctor.recording import Column, Recording, Steps
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.trials.compare.batch_scaling import same_batch
from gpu_doctor.trials.compare.ratio import Stretch
from gpu_doctor.trials.compare.stock import made_share

TOLD_SHARE: Final = 0.03
"""Part of a run's wall-clock from which on reading from the storage counts: it would make a gain worth keeping."""
FEW: Final = 0.05
"""Part of the data below which it is no matter who read it: directories, and pages that other programs drove out, are
read from the storage by warm runs too (0.4 to 2 % of 240 MB in 1600 files, in nearly every fetch)."""
CLEARLY: Final = 2.0
"""Largest amount read by a fair side, as a multiple of the warmest side's: all sides read data that never fit into the
cache."""


def has_samples(recording: Recording) -> bool:
    """True if the batch dimension of every step could be read."""
    samples = recording.steps.samples
    return bool(np.isfinite(samples).all() and samples.sum() > 0)


@dataclass(frozen=True)
class Measured:
    """The rows of a run that are compared."""

    steps: Steps
    wall_s: Column
    """Seconds of each step, see `vitals.pace`."""
    made: float = 1.0
    """Share of their batches that workers made during these steps, see `stock`."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def whole(self) -> bool:
        """True if there is anything to compare."""
        return len(self.steps) > 0 and float(self.wall_s.sum()) > 0

    def stretch(self, by_samples: bool) -> Stretch:
        """Returns seconds and sustainable work of each row."""
        amount = self.steps.samples if by_samples else self.steps.count
        return Stretch(self.wall_s, amount * self.made)


def _judged(recording: Recording) -> tuple[Steps, Column, int, int]:
    """Returns the rows that count, the batches taken before each, and the first and last row after the warm-up.

    Rows as `vitals.measure` takes them; of a trial on a device they lie between its two waits (`Recording.timed`).
    """
    training = recording.steps.kind == TRAINING
    mask = training if training.any() and not training.all() else np.ones(len(training), dtype=bool)
    steps, batches = recording.steps.where(mask), np.nan_to_num(recording.steps.batches)
    before: Column = (np.cumsum(batches) - batches)[mask]
    warm, stop = warmup_rows(steps, recording.setup.training_workers), len(steps)
    if recording.timed is not None:
        inside = np.flatnonzero(recording.timed.rows(steps))
        if len(inside) and warm <= inside[-1]:
            warm, stop = max(warm, int(inside[0])), int(inside[-1]) + 1
    return steps, before, warm, stop


def pair_of(baseline: Recording, candidate: Recording, by_samples: bool) -> tuple[Measured, Measured]:
    """Returns the measured rows of a pair: the same steps of both sides, if both do the same work per step.

    Otherwise an evaluation pass, the end of an epoch or a checkpoint that only one side reached would look like a
    difference in speed.
    """
    (a, before_a, warm_a, stop_a), (b, before_b, warm_b, stop_b) = _judged(baseline), _judged(candidate)
    single = all(len(side) and bool((side.count == 1).all()) for side in (a, b))
    if single and (not by_samples or same_batch(float(np.median(a.samples)), float(np.median(b.samples)))):
        warm, stop = max(warm_a, warm_b), min(stop_a, stop_b)
        if stop - warm >= 0.6 * min(stop_a - warm_a, stop_b - warm_b):
            warm_a, warm_b, stop_a, stop_b = warm, warm, stop, stop
    return _rows(baseline, a, before_a, warm_a, stop_a), _rows(candidate, b, before_b, warm_b, stop_b)


def _rows(recording: Recording, steps: Steps, before: Column, start: int, stop: int) -> Measured:
    rows = steps.rows(start, stop)
    wall_s = paced_s(recording, rows)
    if not len(rows):
        return Measured(rows, wall_s)
    until = float(before[stop - 1] + np.nan_to_num(steps.batches[stop - 1]))
    return Measured(rows, wall_s, made_share(recording, float(before[start]), until))


def wait_share(side: Sequence[Steps]) -> float | None:
    """Returns a side's data wait as a share of wall-clock (host clock), None if it was not measured."""
    share = sum(recording.data_wait_s.sum() for recording in side) / sum(recording.wall_s.sum() for recording in side)
    return None if np.isnan(share) else float(share)


@dataclass(frozen=True)
class _Reading:
    """Bytes that a side read per sample: batches may differ in size, and workers fetch ahead."""

    stored: float
    """Bytes from the storage."""
    whole: float
    """Bytes from files; what a memory map reads is seen only where it comes from the storage."""
    share: float
    """Part of the wall-clock of fetches during which anything came from the storage: what it explains at most."""


def warm_pairs(bases: Sequence[Recording], candidates: Sequence[Recording]) -> list[bool]:
    """Returns for each pair True if none of its sides read clearly more from the storage than another side did."""
    pairs = _sides(bases, candidates)
    warmest = min((part for pair in pairs for part, _ in pair if part is not None), default=0.0)
    bar = max(CLEARLY * warmest, warmest + FEW)
    return [all(part is None or not told or part < bar for part, told in pair) for pair in pairs]


_Side: TypeAlias = tuple[float | None, bool]
"""The part of the data that came from the storage, None = not counted; and whether that explains anything."""


def _sides(bases: Sequence[Recording], candidates: Sequence[Recording]) -> list[tuple[_Side, _Side]]:
    """Returns, for both sides of each pair, the share of data read from storage, and if that counts."""
    pairs = [(_reading(base), _reading(candidate)) for base, candidate in zip(bases, candidates, strict=False)]
    data = max((reading.whole for pair in pairs for reading in pair if reading is not None), default=0.0)

    def side(one: _Reading | None) -> _Side:
        if one is None or not data:
            return None, False
        return one.stored / data, one.share >= TOLD_SHARE

    return [(side(base), side(candidate)) for base, candidate in pairs]


def _reading(recording: Recording) -> _Reading | None:
    fetches = [fetch for fetch in recording.fetches if fetch.stored_bytes is not None and fetch.batches]
    steps, batches = recording.steps, sum(fetch.batches for fetch in fetches)
    loop_s = float(steps.wall_s.sum())
    if not batches or loop_s <= 0:
        return None
    seen, pulled = float(np.nansum(steps.samples)), float(np.nansum(steps.batches))
    size = seen / pulled if seen > 0 and pulled > 0 else 1.0
    stored = sum(fetch.stored_bytes or 0.0 for fetch in fetches) / batches / size
    read = sum(fetch.read_bytes or 0.0 for fetch in fetches) / batches / size
    stored_s = sum(
        (fetch.wall_s if fetch.stored_s is None else fetch.stored_s) / max(fetch.workers, 1) for fetch in fetches
    )
    return _Reading(stored, max(stored, read), min(stored_s / loop_s, 1.0))
