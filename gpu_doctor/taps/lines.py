"""Which lines of the user's code the wall-clock goes to: stack samples of the training thread, taken by the poller.

A look at the stack finds the innermost frame that is the user's (the cell, its functions, a Dataset's `__getitem__`,
a module of the project); frames of installed libraries fold into the line that called them. Every look stands for the
time since the look before, so that the poller may slow down without bending the shares.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from gpu_doctor.phases import EVALUATION, PHASE_NAMES
from gpu_doctor.recorder import Recorder
from gpu_doctor.recording import LineCost

MOST_LINES: Final = 4096
SHOWN_LINES: Final = 40
_DEEPEST: Final = 200
_LIBRARIES: Final = tuple(
    {str(Path(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).resolve().parents[1])}
)
_TORCH: Final = "/torch/"


class LineSampler:
    """Adds up what the looks saw; `look` is called on the poller's thread."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.perf_counter) -> None:
        """Looks at the recorder's training thread."""
        self._recorder, self._clock = recorder, clock
        self._seen: dict[tuple[str, int, str, str, bool], float] = {}
        self._total = 0.0
        self._before: float | None = None
        self._user: dict[str, bool] = {}

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
        phase = PHASE_NAMES[EVALUATION if ledger.evaluating else ledger.phase]
        place = self._place(frame)
        self._total += now - before
        if place is not None and (len(self._seen) < MOST_LINES or (*place[:3], phase, place[3]) in self._seen):
            key = (*place[:3], phase, place[3])
            self._seen[key] = self._seen.get(key, 0.0) + now - before

    def _place(self, frame: FrameType | None) -> tuple[str, int, str, bool] | None:
        """File, line and function of the innermost user frame, and whether torch's Python lies inside it."""
        in_torch = False
        for _ in range(_DEEPEST):
            if frame is None:
                return None
            name = frame.f_code.co_filename
            if self._is_user(name):
                return name, frame.f_lineno, frame.f_code.co_name, in_torch
            in_torch = in_torch or _TORCH in name
            frame = frame.f_back
        return None

    def _is_user(self, name: str) -> bool:
        known = self._user.get(name)
        if known is None:
            library = name.startswith(_LIBRARIES) or "site-packages" in name or "dist-packages" in name
            known = self._user[name] = not library and not name.startswith("<frozen")
        return known

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
