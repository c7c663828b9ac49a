"""How a view follows a run: cursor in, news out. A replay of a saved recording is just another feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpu_doctor.recording import cut
from gpu_doctor.recording.recording import Metric, Recording, Series
from gpu_doctor.recording.steps import Steps


@dataclass(frozen=True)
class Cursor:
    """How far a reader has read. Make an empty one to read from the begin."""

    generation: int = 0
    """Counts the thinnings of a long run; when it moved on, row numbers of before mean nothing."""
    rows: int = 0
    readings: Mapping[str, int] = field(default_factory=dict)
    """Series key -> readings read."""


@dataclass(frozen=True)
class News:
    """What came since the cursor."""

    cursor: Cursor
    """Give this one next time."""
    steps: Steps
    """New rows; all rows if `reset`."""
    series: tuple[Series, ...]
    """New readings of every metric that has any."""
    reset: bool
    """The reader must forget the rows that it holds: the run was thinned."""
    elapsed_s: float
    step_count: int
    """Steps so far (rows of a thinned run stand for several)."""
    done: bool


class Feed(Protocol):
    """A run to follow: a live recorder or a replay."""

    def news(self, cursor: Cursor) -> News:
        """All that came since `cursor`; never blocks, may be called from any one thread."""
        ...


def series_key(metric: Metric) -> str:
    """A name that tells the same metric of two GPUs apart."""
    return metric.name if metric.device is None else f"{metric.name}@{metric.device}"


def readings_since(series: tuple[Series, ...], read: Mapping[str, int]) -> tuple[tuple[Series, ...], dict[str, int]]:
    """The unread part of every series, and how far each is read then."""
    fresh: list[Series] = []
    now = dict(read)
    for one in series:
        key = series_key(one.metric)
        start = read.get(key, 0)
        if len(one.values) > start:
            fresh.append(Series(one.metric, one.times_s[start:], one.values[start:]))
        now[key] = len(one.values)
    return tuple(fresh), now


class Replay:
    """A saved recording as a feed: everything at once, or up to a moment of the run that the caller moves on."""

    def __init__(self, recording: Recording, until_s: float | None = None) -> None:
        """Plays `recording`; `until_s` (seconds after its begin) hides what came later, None shows all."""
        self.recording = recording
        self.until_s = until_s

    def so_far(self) -> Recording:
        """The recording at that moment, as `cut` has it."""
        return self.recording if self.until_s is None else cut.until(self.recording, self.until_s)

    def news(self, cursor: Cursor) -> News:
        """See `Feed.news`."""
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
