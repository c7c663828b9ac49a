"""Which steps are marked on the device: all while that is cheap, else some in a row, as far apart as their cost needs.

A mark costs the host microseconds (an event is made or taken from the pool, put into the stream, asked for and read),
and a step has six or more. What the device does in a few steps in a row is what it does in all, where chance alone
chooses them: shares are read of the steps that were marked, and the others say that they were not. Chance counts steps
and no seconds: whatever lasts long every so many steps (a pause, an evaluation) would always lie before a window that
opens when so much time is over, and never in one.
"""

from __future__ import annotations

import random
from typing import Final

from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.marks import MarkReader

MARKS_SHARE: Final = 0.003
"""Of the wall-clock that marks may cost the host; the rest of the budget is for the other taps and our threads."""
FIRST_STEPS: Final = 64
"""From the begin on so many steps are marked in any case: a trial has no more."""
WINDOW: Final = 9
"""Later so many in a row: the first has no gap, as nothing is known of the step before."""
WINDOW_NS: Final = 50_000_000
"""A window ends when its marks have cost so much, also where no step ends: 64 steps of 30 marks cost half of it."""
NOT_DUE: Final = 1 << 20
"""Events: far more than are folded at once."""
_VARIED: Final = 0.5


class DeviceWindows:
    """Marks for some steps of one run."""

    def __init__(self, marks: MarkReader, now: int) -> None:
        """The first window opens. Args: marks: of the run. now: ns of the host clock."""
        self._marks = marks
        self._random = random.Random(0)
        self._left = FIRST_STEPS
        """Steps until the window ends, or until the next one opens."""
        self._rests = False
        self._spent, self._steps = marks.clock.spent_ns, 0
        """What marks had cost when the window opened, and how many steps have ended since."""
        self._run_began, self._all = now, 0
        """Since when steps are marked, and how many have ended since."""
        self._rested = self._events = 0
        """Steps and events since no step is marked."""
        self.due = NOT_DUE
        """After so many events the log is to be folded, for a window opens."""

    def folded(self, steps: int, events: int, now: int) -> QuietClock | None:
        """So many events were folded, with which so many steps have ended.

        Returns:
            What marks the steps from here on; None where they are not marked.
        """
        marks = self._marks
        marks.read()
        if marks.clock.off:
            return None
        self._left -= steps
        self._steps += steps
        self._all += steps
        if self._rests:
            if self._left > 0:
                self._due_in(steps, events)
                return None
            self._open()
            return marks.clock
        spent_ns = marks.clock.spent_ns - self._spent
        if self._left > 0 and spent_ns < WINDOW_NS:
            return marks.clock
        rest = self._rest(spent_ns, now)
        if rest < 1:
            self._open()
            return marks.clock
        marks.rest()
        self._rests, self._left = True, round(rest * self._random.uniform(1 - _VARIED, 1 + _VARIED))
        self._rested, self._events = 0, 0
        self.due = max(self._left * events // (2 * max(steps, 1)), 1)  # marks are events as well: about half of them
        return None

    def _due_in(self, steps: int, events: int) -> None:
        """So many steps and events of a rest were folded: how many events the steps have that are left of it."""
        self._rested += steps
        self._events += events
        if self._rested:
            self.due = max(self._left * self._events // self._rested, 1)

    def _rest(self, spent_ns: int, now: int) -> float:
        """For how many steps none is to be marked, by the mean step of the run: the window's own steps have no say."""
        step_ns = (now - self._run_began) / max(self._all, 1)
        return spent_ns / MARKS_SHARE / max(step_ns, 1.0) - self._steps

    def _open(self) -> None:
        self._rests, self._left, self.due = False, WINDOW, NOT_DUE
        self._spent, self._steps = self._marks.clock.spent_ns, 0
