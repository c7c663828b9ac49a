"""Splits the intervals between a step's marks into waits, copies, idle and busy device seconds, and sums them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpu_doctor.recording.steps import BACKWARD, DATA_WAIT, FORWARD, LOSS, OPTIMIZER, SYNC

LAUNCHING: Final = (FORWARD, LOSS, BACKWARD, OPTIMIZER)
"""Phases in which the host launches work all the time."""
CAUGHT_UP_S: Final = 2e-5
"""Most remaining work, in seconds, of a device that keeps up with its host: an event passes an idle device within 5 to
10 microseconds, and a short kernel takes as long."""
CAUGHT_UP_SHARE: Final = 0.05
"""A device also keeps up if its remaining work is at most this share of the host's time: no finding could gain more
from it (findings need 5 %)."""


class Window(NamedTuple):
    """Time of a copy, in device seconds from the step's begin."""

    begin_s: float
    end_s: float
    aside: bool
    """True if the copy ran on another stream than the compute stream, which may have worked meanwhile."""


class Interval(NamedTuple):
    """The interval from one mark to the next on the compute stream."""

    phase: int
    """Phase of the host: DATA_WAIT, SYNC, one of LAUNCHING, or OTHER."""
    begin_s: float
    end_s: float
    """End of the interval, as `begin_s` in device seconds from the step's begin."""
    host_s: float
    """Host time between the two marks, in seconds."""
    lag_s: float | None
    """Device work that remained when the host put the second mark, in seconds; None = unknown."""
    own_s: float
    """Part of the host time that gpu_doctor took, in seconds."""
    evaluation: bool


class Tally:
    """Sums of the intervals of one step, in device seconds."""

    def __init__(self, windows: Sequence[Window], own_s: float = 0.0) -> None:
        """Starts with sums of 0.

        Args:
            windows: all copies that may fall into the step.
            own_s: `own_s` at the end of the step before, in seconds.
        """
        self._windows = windows
        self.own_s = own_s
        """Host seconds that gpu_doctor took and that may still make the device wait. They count since the device last
        idled, since the host last waited for it, and since the last evaluation, and for one step at most."""
        self._took_s = 0.0
        self._wait_s = self._copy_s = self._idle_s = self._busy_s = self._caught_up_s = 0.0
        self._phases = dict.fromkeys((FORWARD, BACKWARD, OPTIMIZER), 0.0)

    def add(self, interval: Interval) -> None:
        """Adds an interval; intervals of an evaluation are left out."""
        if interval.evaluation:
            self.own_s = 0.0
            return
        self.own_s += interval.own_s
        self._took_s += interval.own_s
        if interval.end_s <= interval.begin_s:
            return
        launching = interval.phase in LAUNCHING
        aside = not launching and interval.phase != DATA_WAIT
        spans = _united(
            [window for window in self._windows if aside or not window.aside], interval.begin_s, interval.end_s
        )
        copied_s, took_s = _length(spans), interval.end_s - interval.begin_s
        if interval.phase in self._phases:
            self._phases[interval.phase] += took_s - copied_s
        self._copy_s += copied_s
        if launching:
            self._busy_s += took_s - copied_s
            if interval.lag_s is not None and interval.lag_s <= max(CAUGHT_UP_S, CAUGHT_UP_SHARE * interval.host_s):
                self._caught_up_s += took_s - copied_s
                self.own_s = 0.0
            return
        if interval.phase == SYNC:  # without us the host would have waited that much longer
            self.own_s = max(self.own_s - max(interval.host_s - took_s, 0.0), 0.0)
        idle_s = self._idle(interval, spans)
        self._busy_s += max(took_s - copied_s - idle_s, 0.0)
        ours_s = min(self.own_s, idle_s)
        self.own_s -= ours_s
        idle_s -= ours_s
        if interval.phase == DATA_WAIT:
            self._wait_s += idle_s
        else:
            self._idle_s += idle_s

    def values(self) -> tuple[float, ...]:
        """Returns the sums in the order of `step_table.DEVICE_COLUMNS`, without those about other steps."""
        self.own_s = min(self.own_s, self._took_s)
        gap_s = self._wait_s + self._copy_s + self._idle_s
        return (self._busy_s, gap_s, self._wait_s, self._copy_s, *self._phases.values(), self._caught_up_s)

    def _idle(self, interval: Interval, spans: Sequence[tuple[float, float]]) -> float:
        """Returns the longest time that the device may have idled until the second mark was put, without copies."""
        if interval.lag_s is None:
            return 0.0
        until_s = min(max(interval.end_s - interval.lag_s, interval.begin_s), interval.end_s)
        return until_s - interval.begin_s - _length(_cut(spans, interval.begin_s, until_s))


def _united(windows: Sequence[Window], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """Returns the parts of an interval that the windows cover, as spans that do not touch."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(_cut([(window.begin_s, window.end_s) for window in windows], begin_s, end_s)):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _cut(spans: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """Returns the parts of spans that are inside an interval."""
    inside = ((max(begin, begin_s), min(end, end_s)) for begin, end in spans)
    return [(begin, end) for begin, end in inside if end > begin]


def _length(spans: Sequence[tuple[float, float]]) -> float:
    """Returns the total length of the spans."""
    return sum(end - begin for begin, end in spans)
