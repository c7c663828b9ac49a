"""The verdict on a run that goes on: there within seconds, then renewed ever more rarely than the panel is drawn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.notebook.steady import Steady

JUDGING_SHARE: Final = 0.005
"""Part of one core that live verdicts may take: after one that took t, the next comes t / 0.005 later."""
FIRST_VERDICTS: Final = 10
"""So many verdicts come as fast as the panel is drawn. A look at a loop without steps enough is none: a cell that reads
its data for a minute must not wait for the first one longer than another."""


class LiveVerdict:
    """The verdicts on one run, one after the other, asked for on the refresher's thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._steady = Steady()
        self._newest: Diagnosis | None = None
        self._count = 0
        self._next_s = float("-inf")

    def on(self, recorder: Recorder) -> Diagnosis | None:
        """The verdict on the run so far, a new one where it is time for it."""
        now = self._clock()
        if now >= self._next_s:
            self._newest = self._steady.shown(diagnose(recorder.so_far()), now)
            self._count += self._newest.vitals.measured_steps >= FEWEST_STEPS
            took = self._clock() - now
            self._next_s = now + (0.0 if self._count < FIRST_VERDICTS else took / JUDGING_SHARE)
        return self._newest
