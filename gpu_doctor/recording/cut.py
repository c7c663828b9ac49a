"""A recording as it stood at a moment of its run, as far as its columns tell.

Steps, readings and compilations have their times. What a run adds up as a whole (fetches, calls, copies, its own cost)
stands for the part of it that had gone by: the means and shares that are read off such sums are those of the whole run.
What only its end knows, the losses and the peak of memory, is not known yet.
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
    """The recording at `moment_s`, seconds after its begin; the recording itself once that is past its end."""
    if moment_s >= recording.duration_s:
        return recording
    setup, traffic, chores = recording.setup, recording.traffic, recording.chores
    compilations = setup.compilations and tuple(one for one in setup.compilations if one.at_s <= moment_s)
    part = max(moment_s, 0.0) / recording.duration_s
    ended = recording.steps.start_s + recording.steps.wall_s <= moment_s
    return replace(
        recording,
        steps=recording.steps.rows(0, int(ended.sum())),
        setup=replace(setup, compilations=compilations),
        series=tuple(_read(one, moment_s) for one in recording.series),
        fetches=tuple(_part(one, part, _FETCH_SUMS) for one in recording.fetches),
        chores=None if chores is None else tuple(_part(one, part, _CHORE_SUMS) for one in chores),
        traffic=None if traffic is None else _part(traffic, part, (one.name for one in fields(traffic))),
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
    known = series.times_s <= moment_s
    return Series(series.metric, series.times_s[known], series.values[known])


def _part(whole: T, part: float, sums: Iterable[str]) -> T:
    """The sums of a frozen class in proportion; a count keeps what has begun, so that none of something is none."""
    found: dict[str, Any] = {name: getattr(whole, name) for name in sums}
    cut = {
        name: ceil(value * part) if isinstance(value, int) else value * part
        for name, value in found.items()
        if value is not None
    }
    return replace(whole, **cut)  # type: ignore[type-var]
