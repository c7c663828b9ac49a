"""Which lines of the user's code the wall-clock goes to: stack samples of the training thread, taken by the poller.

A look at the stack finds the innermost frame that is the user's (the cell, its functions, a Dataset's `__getitem__`,
a module of the project); frames of installed libraries fold into the line that called them. Every look stands for the
time since the look before, so that the poller may slow down without bending the shares.

In a rest of the taps (see `gpu_doctor.rests`) it is known whether the thread waits for a batch, and not more: a line
takes the phases in which it was seen while all was heard.
"""

from __future__ import annotations

import linecache
import sys
import time
from collections.abc import Callable
from typing import Final

from gpu_doctor.phases import DATA_WAIT, OTHER, PHASE_NAMES
from gpu_doctor.recorder import Recorder
from gpu_doctor.recording import LineCost
from gpu_doctor.taps.places import Place, Places, within_torch

MOST_LINES: Final = 4096
SHOWN_LINES: Final = 40


_WAIT: Final = PHASE_NAMES[DATA_WAIT]
_OTHER: Final = PHASE_NAMES[OTHER]
_PHASES: Final = tuple(dict.fromkeys(one for one in PHASE_NAMES if one != _WAIT))


class LineSampler:
    """Adds up what the looks saw; `look` is called on the poller's thread."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.perf_counter) -> None:
        """Looks at the recorder's training thread."""
        self._recorder, self._clock = recorder, clock
        self._seen: dict[tuple[str, int, str, str, bool], float] = {}
        self._resting: dict[tuple[str, int, str, bool], list[float]] = {}
        """Seconds of looks in rests outside of the wait, with torch on the stack and without."""
        self._total = 0.0
        self.looks = 0
        """How often the running loop was looked at."""
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
        self.looks += 1
        frame = sys._current_frames().get(self._recorder.thread)
        phase, resting = PHASE_NAMES[ledger.phase_now()], ledger.pulse.resting
        place = self._places.of(frame)
        if resting:
            ledger.steady.rests.mind()
            if phase == _OTHER and place is not None and len(self._resting) < MOST_LINES:
                self._resting.setdefault(_key(place), [0.0, 0.0])[within_torch(frame)] += now - before
                return
        self._total += now - before
        if place is not None and (len(self._seen) < MOST_LINES or (*place[:3], phase, place[3]) in self._seen):
            key = (*place[:3], phase, place[3])
            self._seen[key] = self._seen.get(key, 0.0) + now - before

    def costs(self) -> tuple[LineCost, ...]:
        """The dearest lines so far, dearest first; empty before anything was seen."""
        seen, total = self._all()
        if total <= 0:
            return ()
        dearest = sorted(seen.items(), key=lambda item: -item[1])[:SHOWN_LINES]
        return tuple(
            LineCost(file, line, function, linecache.getline(file, line).strip(), phase, seconds / total, in_torch)
            for (file, line, function, phase, in_torch), seconds in dearest
        )

    def _all(self) -> tuple[dict[tuple[str, int, str, str, bool], float], float]:
        """Seconds by line and phase, those of rests among them, and their sum.

        A line that was never seen but in rests is the loop's own Python where torch is not on its stack; else nobody
        knows what it was: its looks are left out.
        """
        heard, total = self._seen.copy(), self._total
        seen = heard.copy()
        for (file, line, function, in_torch), (own_s, torch_s) in self._resting.copy().items():
            known = {phase: heard.get((file, line, function, phase, in_torch), 0.0) for phase in _PHASES}
            if not any(known.values()):
                known = {phase: heard.get((file, line, function, phase, not in_torch), 0.0) for phase in _PHASES}
            if not any(known.values()):
                known, torch_s = {_OTHER: 1.0}, 0.0
            whole = sum(known.values())
            for phase, seconds in known.items():
                if seconds and own_s + torch_s:
                    key = (file, line, function, phase, in_torch)
                    seen[key] = seen.get(key, 0.0) + (own_s + torch_s) * seconds / whole
            total += own_s + torch_s
        return seen, total


def _key(place: Place) -> tuple[str, int, str, bool]:
    return place.file, place.line, place.function, place.in_torch
