"""Decides which steps are marked on the device: all if that is cheap, else some in a row, spaced by their cost.

A mark costs the host microseconds (an event is made or taken from the pool, put into the stream, queried and read), and
a step has six or more. If a few steps in a row are chosen by chance, they represent all steps: shares are computed from
the marked steps, and the others are recorded as not marked. The random distance is in steps, not seconds: windows that
open after a time would always come right after a long event (a pause, an evaluation), and never contain one.
"""

from __future__ import annotations

import random
from typing import Final

from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.marks import MarkReader

MARKS_SHARE: Final = 0.003
"""Share of the wall-clock that marks may take; the rest of the budget is for the other taps and our threads."""
FIRST_STEPS: Final = 64
"""Number of first steps that are marked in any case: a trial has no more."""
WINDOW: Final = 9
"""Number of steps in a later window; its first step has no GPU gap, as the step before is not marked."""
WINDOW_NS: Final = 50_000_000
"""Most cost of a window's marks, in ns, even if no step ends: 64 steps of 30 marks cost half of it."""
NOT_DUE: Final = 1 << 20
"""Number of events that means "not due": far more than are folded at once."""
_VARIED: Final = 0.5
"""Share by which the distance of two windows varies at random."""


class DeviceWindows:
    """Switches marks on for windows of steps in one run."""

    def __init__(self, marks: MarkReader, now: int) -> None:
        """Opens the first window, in which steps are marked. Args: marks: the reader of marks. now: host time, ns."""
        self._marks = marks
        self._random = random.Random(0)
        self._steps_left = FIRST_STEPS
        """Number of steps until the window ends, or until the next one opens."""
        self._paused = False
        """True between two windows."""
        self._spent, self._steps = marks.clock.spent_ns, 0
        """Cost of all marks when the window opened, in ns, and number of steps since."""
        self._run_began, self._all = now, 0
        """Time since when steps are marked, in ns, and number of steps since."""
        self._rested = self._events = 0
        """Number of steps and events since the last window."""
        self.due = NOT_DUE
        """Number of events after which the log is to be folded, because a window opens."""

    def folded(self, steps: int, events: int, now: int) -> QuietClock | None:
        """Counts folded steps, and opens or ends a window.

        Args:
            steps: number of steps that ended in the last fold.
            events: number of events in the last fold.
            now: host time, in ns.

        Returns:
            The clock that marks the next steps; None if they are not marked.
        """
        marks = self._marks
        marks.read()
        if marks.clock.off:
            return None
        self._steps_left -= steps
        self._steps += steps
        self._all += steps
        if self._paused:
            if self._steps_left > 0:
                self._due_in(steps, events)
                return None
            self._open()
            return marks.clock
        spent_ns = marks.clock.spent_ns - self._spent
        if self._steps_left > 0 and spent_ns < WINDOW_NS:
            return marks.clock
        rest = self._rest(spent_ns, now)
        if rest < 1:
            self._open()
            return marks.clock
        marks.rest()
        self._paused, self._steps_left = True, round(rest * self._random.uniform(1 - _VARIED, 1 + _VARIED))
        self._rested, self._events = 0, 0
        self.due = max(self._steps_left * events // (2 * max(steps, 1)), 1)  # about half of the events are marks
        return None

    def _due_in(self, steps: int, events: int) -> None:
        """Estimates the number of events until the next window, after folded `steps` and `events` outside of one."""
        self._rested += steps
        self._events += events
        if self._rested:
            self.due = max(self._steps_left * self._events // self._rested, 1)

    def _rest(self, spent_ns: int, now: int) -> float:
        """Returns the number of steps to leave unmarked after a window that cost `spent_ns`, by the run's mean step."""
        step_ns = (now - self._run_began) / max(self._all, 1)
        return spent_ns / MARKS_SHARE / max(step_ns, 1.0) - self._steps

    def _open(self) -> None:
        """Opens a window."""
        self._paused, self._steps_left, self.due = False, WINDOW, NOT_DUE
        self._spent, self._steps = self._marks.clock.spent_ns, 0
