"""Feeds, which a view reads to follow a run: it passes a cursor and gets the news since then.

A live recorder is a feed, and so is the replay of a saved recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpu_doctor.recording import cut
from gpu_doctor.recording.recording import Metric, Recording, Series
from gpu_doctor.recording.steps import Steps


@dataclass(frozen=True)
class Cursor:
    """A reader's position in a run. An empty one reads from the beginning."""

    generation: int = 0
    """Number of times that the rows of a long run were thinned; when it changes, earlier row numbers are invalid."""
    rows: int = 0
    """Number of rows read."""
    readings: Mapping[str, int] = field(default_factory=dict)
    """Number of readings read, by series key."""


@dataclass(frozen=True)
class News:
    """Rows and readings that came since a cursor."""

    cursor: Cursor
    """Cursor to pass next time."""
    steps: Steps
    """New rows; all rows if `reset`."""
    series: tuple[Series, ...]
    """New readings of every metric that has any."""
    reset: bool
    """True if the reader must drop the rows that it has, because the run was thinned."""
    elapsed_s: float
    """Time since the run began, in s."""
    step_count: int
    """Number of steps so far (rows of a thinned run cover several)."""
    done: bool
    """True if the run is over."""


class Feed(Protocol):
    """Interface of a run that a view can follow: a live recorder or a replay."""

    def news(self, cursor: Cursor) -> News:
        """Returns everything since `cursor`; never blocks. Any thread may call it, but only one at a time."""
        ...


def series_key(metric: Metric) -> str:
    """Returns a metric's name, with the GPU's index if it has one."""
    return metric.name if metric.device is None else f"{metric.name}@{metric.device}"


def readings_since(series: tuple[Series, ...], read: Mapping[str, int]) -> tuple[tuple[Series, ...], dict[str, int]]:
    """Returns the unread part of every series.

    Args:
        series: All series.
        read: Number of readings that were read before, by series key.

    Returns:
        The series that have new readings, and the numbers of readings that are read now.
    """
    fresh: list[Series] = []
    now = dict(read)
    for readings in series:
        key = series_key(readings.metric)
        start = read.get(key, 0)
        if len(readings.values) > start:
            fresh.append(Series(readings.metric, readings.times_s[start:], readings.values[start:]))
        now[key] = len(readings.values)
    return tuple(fresh), now


class Replay:
    """A saved recording as a feed: everything at once, or up to a moment that the caller advances."""

    def __init__(self, recording: Recording, until_s: float | None = None) -> None:
        """Plays `recording` up to `until_s`, in seconds after its start; None plays all."""
        self.recording = recording
        self.until_s = until_s

    def so_far(self) -> Recording:
        """Returns the recording up to the current moment."""
        return self.recording if self.until_s is None else cut.until(self.recording, self.until_s)

    def news(self, cursor: Cursor) -> News:
        """Returns everything up to the current moment since `cursor`, see `Feed.news`."""
        seen = self.so_far()
        fresh, read = readings_since(seen.series, cursor.readings)
        return News(
            cursor=Cursor(0, len(seen.steps), read),
            steps=seen.steps.rows(cursor.rows),
            series=fresh,
            reset=False,
            elapsed_s=seen.duration_s,
            step_count=int(seen.steps.count.sum()),
            done=seen is self.recording,
        )
