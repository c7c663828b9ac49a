"""The intervals between a step's marks, split into waits, copies, idle and busy device seconds, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpu_doctor.recording.steps import BACKWARD, DATA_WAIT, FORWARD, LOSS, OPTIMIZER, SYNC

LAUNCHING: Final = (FORWARD, LOSS, BACKWARD, OPTIMIZER)
"""Phases in which the host launches all the time."""
CAUGHT_UP_S: Final = 2e-5
"""A device with no more than this left to do keeps up with its host: an event passes an idle device within 5 to 10
microseconds, and a short kernel takes as long."""
CAUGHT_UP_SHARE: Final = 0.05
"""So does one whose rest is a smaller part than this of what the host took: more would not be gained from it (the bar
of findings)."""


class Window(NamedTuple):
    """When a copy was made, in device seconds from the step's begin."""

    begin_s: float
    end_s: float
    aside: bool
    """It went by another stream than the compute stream, which may have worked meanwhile."""


class Interval(NamedTuple):
    """From one mark to the next one on the compute stream."""

    phase: int
    """What the host was in: DATA_WAIT, SYNC, one of LAUNCHING, or OTHER."""
    begin_s: float
    end_s: float
    """On the device, from the step's begin."""
    host_s: float
    """How long the host took for it."""
    lag_s: float | None
    """What the device had left to do when the host came to the end; None = not known: it was never found close."""
    own_s: float
    """What of the host's time gpu_doctor took itself."""
    evaluation: bool


class Tally:
    """Sums over the intervals of one step, in device seconds."""

    def __init__(self, windows: Sequence[Window], own_s: float = 0.0) -> None:
        """Sums that are 0.

        Args:
            windows: all copies that may fall into the step.
            own_s: `own_s` at the end of the step before.
        """
        self._windows = windows
        self.own_s = own_s
        """Host seconds that gpu_doctor took and that the device may still have to wait for: they count since it last
        idled, since the host last waited for it, and since the last evaluation, and no longer than a step."""
        self._took_s = 0.0
        self._wait_s = self._copy_s = self._idle_s = self._busy_s = self._caught_up_s = 0.0
        self._phases = dict.fromkeys((FORWARD, BACKWARD, OPTIMIZER), 0.0)

    def add(self, one: Interval) -> None:
        """Adds an interval; those of an evaluation are in no sum."""
        if one.evaluation:
            self.own_s = 0.0
            return
        self.own_s += one.own_s
        self._took_s += one.own_s
        if one.end_s <= one.begin_s:
            return
        launching = one.phase in LAUNCHING
        aside = not launching and one.phase != DATA_WAIT
        spans = _united([window for window in self._windows if aside or not window.aside], one.begin_s, one.end_s)
        copied_s, took_s = _length(spans), one.end_s - one.begin_s
        if one.phase in self._phases:
            self._phases[one.phase] += took_s - copied_s
        self._copy_s += copied_s
        if launching:
            self._busy_s += took_s - copied_s
            if one.lag_s is not None and one.lag_s <= max(CAUGHT_UP_S, CAUGHT_UP_SHARE * one.host_s):
                self._caught_up_s += took_s - copied_s
                self.own_s = 0.0
            return
        if one.phase == SYNC:  # without us the host would have waited so much longer
            self.own_s = max(self.own_s - max(one.host_s - took_s, 0.0), 0.0)
        idle_s = self._idle(one, spans)
        self._busy_s += max(took_s - copied_s - idle_s, 0.0)
        ours_s = min(self.own_s, idle_s)
        self.own_s -= ours_s
        idle_s -= ours_s
        if one.phase == DATA_WAIT:
            self._wait_s += idle_s
        else:
            self._idle_s += idle_s

    def values(self) -> tuple[float, ...]:
        """In the order of `step_table.DEVICE_COLUMNS`, up to those that tell of other steps."""
        self.own_s = min(self.own_s, self._took_s)
        gap_s = self._wait_s + self._copy_s + self._idle_s
        return (self._busy_s, gap_s, self._wait_s, self._copy_s, *self._phases.values(), self._caught_up_s)

    def _idle(self, one: Interval, spans: Sequence[tuple[float, float]]) -> float:
        """How long the device had nothing to do, at most: until the host came to the end, but for copies."""
        if one.lag_s is None:
            return 0.0
        until_s = min(max(one.end_s - one.lag_s, one.begin_s), one.end_s)
        return until_s - one.begin_s - _length(_cut(spans, one.begin_s, until_s))


def _united(windows: Sequence[Window], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """What the windows cover of an interval, in spans that do not touch."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(_cut([(one.begin_s, one.end_s) for one in windows], begin_s, end_s)):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _cut(spans: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """The parts of spans that lie in an interval."""
    inside = ((max(begin, begin_s), min(end, end_s)) for begin, end in spans)
    return [(begin, end) for begin, end in inside if end > begin]


def _length(spans: Sequence[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in spans)
