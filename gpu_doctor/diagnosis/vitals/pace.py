"""Time of steps if the host runs ahead of its device, so that the host's clock only times the launching.

There are three clocks, the surest first. A trial waits for the device before its first and after its last measured
step: the time between is the wall-clock of these steps. In any other run the device's clock times each step, from the
end of one marked step to the end of the next. If that is no longer than the host's time, the device kept up and the
host's clock is used, because it times every step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Recording, Steps, Timed

AHEAD: Final = 1.01
"""The host ran ahead if the device took more than this times the host's seconds; less may be the step's own edges."""
FEWEST_READ: Final = 5
"""Fewest steps that the device's clock must have timed to be used; a verdict needs as many."""


def paced_steps(recording: Recording, rows: Steps) -> Steps:
    """Selects the rows that the run's speed is measured on: in a trial, those between its two waits."""
    if recording.timed is None:
        return rows
    inside = recording.timed.rows(rows)
    return rows.where(inside) if inside.any() else rows


def paced_s(recording: Recording, rows: Steps) -> Column:
    """Seconds that each row took, by the surest clock.

    Args:
        recording: the recording of a run or a trial.
        rows: consecutive rows of it.

    Returns:
        Seconds, one value a row; `rows.wall_s` itself if the host's clock is used.
    """
    device = _by_device(recording.steps)
    if recording.timed is not None:
        each = _by_waits(recording.timed, recording.steps, device)
    elif device is not None:
        each = device
    else:
        return rows.wall_s
    own: Column = each[np.searchsorted(recording.steps.start_s, rows.start_s)]
    if recording.timed is not None:
        return own
    return own if own.sum() > AHEAD * rows.wall_s.sum() else rows.wall_s


def _by_waits(timed: Timed, steps: Steps, device: Column | None) -> Column:
    """Seconds of every row, scaled so that the rows between the two waits add up to the time between them.

    The device's clock gives the proportions. If it was not read, the host's clock does, unless the host ran ahead: then
    all steps are taken to be alike.
    """
    inside = timed.rows(steps)
    if (steps.gpu_since_steps[inside] > 0).sum() < FEWEST_READ:
        device = None
    host_s = float(np.nansum(steps.wall_s[inside]))
    if not host_s > 0:  # of a recording that was cut
        return steps.wall_s
    shape = device if device is not None else steps.wall_s if timed.wall_s <= AHEAD * host_s else steps.count
    each: Column = shape * (timed.wall_s / float(np.nansum(shape[inside])))
    return each


def _by_device(steps: Steps) -> Column | None:
    """Device seconds of every row; None if the device's clock timed fewer than FEWEST_READ steps.

    The time between two timed steps is spread over the steps between; those after the last get the mean.
    """
    read = np.flatnonzero(steps.gpu_since_steps > 0)
    took_s, of = steps.gpu_since_s[read], steps.gpu_since_steps[read]
    if of.sum() < FEWEST_READ:
        return None
    pace = np.append(took_s / of, took_s.sum() / of.sum())
    each: Column = pace[np.searchsorted(read, np.arange(len(steps)))] * steps.count
    return each
