"""Detects memory that grows step by step: fits a robust line to its readings, and rules out warming up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Steps

FEWEST_READINGS: Final = 8
"""Fewest readings that can tell a rise in every quarter of the run from chance."""
MOST_WINDOWS: Final = 8
"""Most windows that the readings are divided into."""
FITTED_MOST: Final = 200
"""Most readings for the pairwise slopes; a longer series is thinned."""
LARGEST_JUMP_SHARE: Final = 0.5
"""Largest excess of one window's part of the rise over its part of the steps, as a part of the most it could be. In a
steady rise each window adds its part of the steps; an allocation that stays adds all in one window. Windows differ in
their steps because readings are taken when there is time for them."""
RISING_WINDOWS: Final = 0.75
"""Smallest part of the windows that must be higher than the window before."""
LATE_RATE: Final = 0.5
"""Smallest rate of the last half over that of the first. Caches and allocators that warm up flatten (their rate halves
and halves again); memory that is kept at every step does not."""
ABOVE_SCATTER: Final = 4.0
"""Smallest rise over the readings' scatter around the line (with pure noise, 8 readings reach 3)."""


@dataclass(frozen=True)
class Growth:
    """A steady rise of memory, as a line through readings."""

    bytes_per_step: float
    rise_bytes: float
    """Rise from the first to the last reading."""
    steps: float
    """Steps between the first and the last reading."""


def steps_done(steps: Steps, times_s: Column) -> Column:
    """Returns how many steps had ended at each time (seconds of the run); a step under way counts in part."""
    if not len(steps):
        return np.zeros(len(times_s))
    edges = np.append(steps.start_s, steps.end_s)
    return np.asarray(np.interp(times_s, edges, np.concatenate([[0.0], np.cumsum(steps.count)])), dtype=np.float64)


def rising(done: Column, values: Column) -> Growth | bool | None:
    """Decides if memory, whose readings may swing within a step, rises steadily.

    Args:
        done: steps that had ended at each reading, ascending.
        values: readings in bytes.

    Returns:
        The growth; False if the readings do not rise steadily; None if they are too few to tell.
    """
    known = np.isfinite(values) & np.isfinite(done)
    at, readings = _one_a_step(done[known], values[known])
    if len(readings) < FEWEST_READINGS or at[-1] - at[0] < FEWEST_READINGS:
        return None
    floors_at, floors = _floors(at, readings)
    rises = np.diff(floors)
    total = floors[-1] - floors[0]
    if total <= 0 or (rises > 0).mean() < RISING_WINDOWS:
        return False
    even = np.diff(floors_at) / (floors_at[-1] - floors_at[0])
    if (rises / total > even + LARGEST_JUMP_SHARE * (1.0 - even)).any():
        return False
    if _rate(floors_at, floors, late=True) < LATE_RATE * _rate(floors_at, floors, late=False):
        return False
    slope = min(_theil_sen(at, readings), _theil_sen(floors_at, floors))
    rise = min(slope * float(at[-1] - at[0]), float(readings.max() - readings.min()))
    rest = readings - slope * at
    scatter = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    if slope <= 0 or rise < ABOVE_SCATTER * scatter:
        return False
    return Growth(slope, rise, float(at[-1] - at[0]))


def _one_a_step(at: Column, readings: Column) -> tuple[Column, Column]:
    """Selects the lowest reading of each step, so that a long step (an evaluation, a compiler) does not count often.

    Args:
        at: steps that had ended at each reading.
        readings: readings in bytes.
    """
    if not len(at):
        return at, readings
    order = np.lexsort((readings, np.floor(at)))
    first = np.append(True, np.diff(np.floor(at)[order]) > 0)
    return at[order][first], readings[order][first]


def _floors(at: Column, readings: Column) -> tuple[Column, Column]:
    """Returns the lowest reading of each of 4 to 8 windows, which is free of memory that a step gives back."""
    windows = min(max(len(readings) // 4, 4), MOST_WINDOWS)
    parts = np.array_split(np.arange(len(readings)), windows)
    lowest = [part[int(np.argmin(readings[part]))] for part in parts]
    return at[lowest], readings[lowest]


def _rate(at: Column, readings: Column, late: bool) -> float:
    """Returns the rise in bytes per step over the first half of the windows, or over the last with `late`."""
    middle = len(readings) // 2
    first, last = (middle, -1) if late else (0, middle)
    return float((readings[last] - readings[first]) / max(at[last] - at[first], 1e-9))


def _theil_sen(at: Column, readings: Column) -> float:
    """Returns the median slope over all pairs of readings (Theil 1950, Sen 1968), which single outliers do not bend."""
    thin = max(1, len(at) // FITTED_MOST)
    x, y = at[::thin], readings[::thin]
    i, j = np.triu_indices(len(x), 1)
    steps_between = x[j] - x[i]
    return (
        float(np.median((y[j] - y[i])[steps_between > 0] / steps_between[steps_between > 0]))
        if (steps_between > 0).any()
        else 0.0
    )
