"""Which lines of the user's code the wall-clock goes to: stack samples of the training thread, taken by the poller.

A look at the stack finds the innermost frame that is the user's (the cell, its functions, a Dataset's `__getitem__`,
a module of the project); frames of installed libraries fold into the line that called them. Every look stands for the
time since the look before, so that the poller may slow down without bending the shares.
"""

from __future__ import annotations

import linecache
import sys
import time
from collections.abc import Callable
from typing import Final

from gpu_doctor.phases import PHASE_NAMES
from gpu_doctor.recorder import Recorder
from gpu_doctor.recording import LineCost
from gpu_doctor.taps.places import Places

MOST_LINES: Final = 4096
SHOWN_LINES: Final = 40


class LineSampler:
    """Adds up what the looks saw; `look` is called on the poller's thread."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.perf_counter) -> None:
        """Looks at the recorder's training thread."""
        self._recorder, self._clock = recorder, clock
        self._seen: dict[tuple[str, int, str, str, bool], float] = {}
        self._total = 0.0
        self._before: float | None = None
        self._places = Places()

    def look(self) -> None:
        """One look; nothing before the loop began and nothing after it ended."""
        now, before = self._clock(), self._before
        ledger = self._recorder.ledger
        if not ledger.started:
            return
        self._before = now
        if before is None:
            return
        frame = sys._current_frames().get(self._recorder.thread)
        phase = PHASE_NAMES[ledger.phase_now()]
        place = self._places.of(frame)
        self._total += now - before
        if place is not None and (len(self._seen) < MOST_LINES or (*place[:3], phase, place[3]) in self._seen):
            key = (*place[:3], phase, place[3])
            self._seen[key] = self._seen.get(key, 0.0) + now - before

    def costs(self) -> tuple[LineCost, ...]:
        """The dearest lines so far, dearest first; empty before anything was seen."""
        total = self._total
        if total <= 0:
            return ()
        dearest = sorted(self._seen.copy().items(), key=lambda item: -item[1])[:SHOWN_LINES]
        return tuple(
            LineCost(file, line, function, linecache.getline(file, line).strip(), phase, seconds / total, in_torch)
            for (file, line, function, phase, in_torch), seconds in dearest
        )
