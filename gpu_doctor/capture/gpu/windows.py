"""Which steps are marked on the device: all while that is cheap, else some in a row, as far apart as their cost needs.

A mark costs the host microseconds (an event is made or taken from the pool, put into the stream, asked for and read),
and a step has six or more. What the device does in a few steps in a row, chosen by the time and by chance, is what it
does in all: shares are read of the steps that were marked, and the others say that they were not.
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
WINDOW_NS: Final = 20_000_000
"""A window ends when its marks have cost so much, also where no step ends: as 64 steps of 30 marks cost."""
_VARIED: Final = 0.25


class DeviceWindows:
    """Marks for some steps of one run."""

    def __init__(self, marks: MarkReader, now: int) -> None:
        """The first window opens. Args: marks: of the run. now: ns of the host clock."""
        self._marks = marks
        self._random = random.Random(0)
        self._left = FIRST_STEPS
        self._began, self._spent = now, marks.clock.spent_ns
        self._due: int | None = None
        """When the next window opens; None = one is open."""

    def folded(self, steps: int, now: int) -> QuietClock | None:
        """Events were folded, with which so many steps have ended.

        Returns:
            What marks the steps from here on; None where they are not marked.
        """
        marks = self._marks
        marks.read()
        if marks.clock.off:
            return None
        if self._due is not None:
            if now < self._due:
                return None
            self._open(now)
            return marks.clock
        self._left -= steps
        spent_ns = marks.clock.spent_ns - self._spent
        if self._left > 0 and spent_ns < WINDOW_NS:
            return marks.clock
        due = self._began + round(spent_ns / MARKS_SHARE)
        if due <= now:
            self._open(now)
            return marks.clock
        marks.rest()
        self._due = now + round((due - now) * self._random.uniform(1 - _VARIED, 1 + _VARIED))
        return None

    def _open(self, now: int) -> None:
        self._left, self._due = WINDOW, None
        self._began, self._spent = now, self._marks.clock.spent_ns
