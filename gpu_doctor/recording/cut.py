"""Reconstructs a recording as it was at an earlier moment of its run.

Steps, readings and compilations have times and are cut by them. Sums over the whole run (fetches, calls, copies, own
cost) are reduced in proportion to the elapsed time, so means and shares of such sums stay those of the whole run.
Values known only at the end, the losses and the peak memory, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from math import ceil
from typing import Any, Final, TypeVar

from gpu_doctor.recording.recording import Losses, Recording, Series

T = TypeVar("T")

_FETCH_SUMS: Final = (
    *("batches", "wall_s", "cpu_s", "collate_s", "collate_cpu_s", "queued_s", "read_bytes", "stored_bytes", "stored_s"),
    *("delivered", "passes", "starts", "start_s", "first_s", "ends", "end_s"),
)
_CHORE_SUMS: Final = ("calls", "wall_s", "nbytes", "other_s")


def until(recording: Recording, moment_s: float) -> Recording:
    """Returns the recording as it was at `moment_s`, in s after its start; the recording itself from its end on."""
    if moment_s >= recording.duration_s:
        return recording
    setup, traffic, chores = recording.setup, recording.traffic, recording.chores
    compilations = setup.compilations and tuple(found for found in setup.compilations if found.at_s <= moment_s)
    part = max(moment_s, 0.0) / recording.duration_s
    ended = recording.steps.start_s + recording.steps.wall_s <= moment_s
    return replace(
        recording,
        steps=recording.steps.rows(0, int(ended.sum())),
        setup=replace(setup, compilations=compilations),
        series=tuple(_read(series, moment_s) for series in recording.series),
        fetches=tuple(_part(fetch, part, _FETCH_SUMS) for fetch in recording.fetches),
        chores=None if chores is None else tuple(_part(chore, part, _CHORE_SUMS) for chore in chores),
        traffic=None if traffic is None else _part(traffic, part, (item.name for item in fields(traffic))),
        looks=None if recording.looks is None else ceil(recording.looks * part),
        outcome="completed",
        reason="",
        losses=Losses(),
        timed=None,
        notes=(),
        duration_s=max(moment_s, 0.0),
        overhead_s=recording.overhead_s * part,
        peak_bytes=float("nan"),
    )


def _read(series: Series, moment_s: float) -> Series:
    """Returns the readings up to a moment."""
    known = series.times_s <= moment_s
    return Series(series.metric, series.times_s[known], series.values[known])


def _part(whole: T, part: float, sums: Iterable[str]) -> T:
    """Returns a frozen object with some of its sums reduced to a share `part`, 0 to 1.

    Counts are rounded up, so that only a count of 0 gives 0.
    """
    found: dict[str, Any] = {name: getattr(whole, name) for name in sums}
    cut = {
        name: ceil(value * part) if isinstance(value, int) else value * part
        for name, value in found.items()
        if value is not None
    }
    return replace(whole, **cut)  # type: ignore[type-var]
