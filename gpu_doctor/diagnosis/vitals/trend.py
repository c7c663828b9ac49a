"""Whether memory grows step by step: a robust line through its readings, and what tells growth from warming up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Steps

FEWEST_READINGS: Final = 8
"""Fewer readings cannot tell a rise of every quarter from chance."""
MOST_WINDOWS: Final = 8
FITTED_MOST: Final = 200
"""Readings that the pairwise slopes are taken of; more are thinned."""
LARGEST_JUMP_SHARE: Final = 0.5
"""Of a steady rise each window brings what its steps are of all; of one allocation that stays one window brings all.
What is nearer to that than half-way is no steady rise. Windows differ in their steps: readings come when there is
time for them."""
RISING_WINDOWS: Final = 0.75
LATE_RATE: Final = 0.5
"""The last half's rate is at least half of the first's: caches and allocators that warm up flatten (their rate halves
and halves again), what is kept every step does not."""
ABOVE_SCATTER: Final = 4.0
"""The rise is at least so many times the readings' scatter around the line (of pure noise, 8 readings reach 3)."""


@dataclass(frozen=True)
class Growth:
    """A rise that goes on, as a line through readings."""

    bytes_per_step: float
    rise_bytes: float
    """Over the readings looked at."""
    steps: float
    """Steps between the first and the last of them."""


def steps_done(steps: Steps, times_s: Column) -> Column:
    """How many steps had ended at some times (seconds of the run), with parts of steps."""
    if not len(steps):
        return np.zeros(len(times_s))
    edges = np.append(steps.start_s, steps.end_s)
    return np.asarray(np.interp(times_s, edges, np.concatenate([[0.0], np.cumsum(steps.count)])), dtype=np.float64)


def rising(done: Column, values: Column) -> Growth | bool | None:
    """Judges readings of memory that may swing within a step.

    Args:
        done: steps that had ended at each reading, ascending.
        values: bytes.

    Returns:
        The growth; False where the readings do not rise steadily; None where they are too few to tell.
    """
    known = np.isfinite(values) & np.isfinite(done)
    at, held = _one_a_step(done[known], values[known])
    if len(held) < FEWEST_READINGS or at[-1] - at[0] < FEWEST_READINGS:
        return None
    floors_at, floors = _floors(at, held)
    rises = np.diff(floors)
    total = floors[-1] - floors[0]
    if total <= 0 or (rises > 0).mean() < RISING_WINDOWS:
        return False
    even = np.diff(floors_at) / (floors_at[-1] - floors_at[0])
    if (rises / total > even + LARGEST_JUMP_SHARE * (1.0 - even)).any():
        return False
    if _rate(floors_at, floors, late=True) < LATE_RATE * _rate(floors_at, floors, late=False):
        return False
    slope = min(_theil_sen(at, held), _theil_sen(floors_at, floors))
    rise = min(slope * float(at[-1] - at[0]), float(held.max() - held.min()))
    rest = held - slope * at
    scatter = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    if slope <= 0 or rise < ABOVE_SCATTER * scatter:
        return False
    return Growth(slope, rise, float(at[-1] - at[0]))


def _one_a_step(at: Column, held: Column) -> tuple[Column, Column]:
    """Of the readings within one step the least: a long one (its evaluation, a compiler) would be taken for many."""
    if not len(at):
        return at, held
    order = np.lexsort((held, np.floor(at)))
    first = np.append(True, np.diff(np.floor(at)[order]) > 0)
    return at[order][first], held[order][first]


def _floors(at: Column, held: Column) -> tuple[Column, Column]:
    """The least reading of each of 4 to 8 windows: what a step gives back is not in it."""
    windows = min(max(len(held) // 4, 4), MOST_WINDOWS)
    parts = np.array_split(np.arange(len(held)), windows)
    lowest = [part[int(np.argmin(held[part]))] for part in parts]
    return at[lowest], held[lowest]


def _rate(at: Column, held: Column, late: bool) -> float:
    """Bytes a step over the first or the last half."""
    middle = len(held) // 2
    first, last = (middle, -1) if late else (0, middle)
    return float((held[last] - held[first]) / max(at[last] - at[first], 1e-9))


def _theil_sen(at: Column, held: Column) -> float:
    """The median of the slopes of all pairs (Theil 1950, Sen 1968): single outliers do not bend it."""
    thin = max(1, len(at) // FITTED_MOST)
    x, y = at[::thin], held[::thin]
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] - x[i]
    return float(np.median((y[j] - y[i])[apart > 0] / apart[apart > 0])) if (apart > 0).any() else 0.0
