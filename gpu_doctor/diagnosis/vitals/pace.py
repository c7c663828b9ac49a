"""How long steps took where a host runs ahead of its device: its own clock then times the launching.

Three clocks, the surest first. A trial waited for the device before its first and after its last measured step: what
lies between is the wall-clock of these steps. Of any other run the device's own clock tells, from the end of one marked
step to the end of the next. Where that says no more than the host's clock, the device kept up, and the host's is used:
it knows of every step, and all of it is accounted for.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Recording, Steps, Timed

AHEAD: Final = 1.01
"""The device took so many times the host's seconds where the host ran ahead; less is where in a step it began."""
FEWEST_READ: Final = 5
"""Steps that the device's clock must have timed to be believed: below so many there is no verdict either."""


def paced_steps(recording: Recording, rows: Steps) -> Steps:
    """Of some rows of a run, those by which its speed is told: of a trial, those between its two waits."""
    if recording.timed is None:
        return rows
    inside = recording.timed.rows(rows)
    return rows.where(inside) if inside.any() else rows


def paced_s(recording: Recording, rows: Steps) -> Column:
    """Seconds that each row took.

    Args:
        recording: of a run or a trial.
        rows: some of its rows, one after the other.

    Returns:
        One for each row; `rows.wall_s` itself where the host's clock tells.
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
    """Seconds of every row, of which those of the stretch add up to what lies between the two waits.

    How they share it the device's clock says. Where it was not read, the host's does if it did not run ahead, and else
    nothing is known of single steps: they are taken to be alike.
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
    """Device seconds of every row; None where its clock was hardly read.

    What lies between two steps that were read is spread over all of them; what came after the last, and before the
    first, went on as the others did.
    """
    read = np.flatnonzero(steps.gpu_since_steps > 0)
    took_s, of = steps.gpu_since_s[read], steps.gpu_since_steps[read]
    if of.sum() < FEWEST_READ:
        return None
    pace = np.append(took_s / of, took_s.sum() / of.sum())
    each: Column = pace[np.searchsorted(read, np.arange(len(steps)))] * steps.count
    return each
