"""The seconds of one side of a trial: they begin when it is warm; what comes before has a budget of its own.

A cell that builds a model, downloads data or compiles needs its time before it trains as it will. None of that is
measured, so none of it is taken from the seconds that a person gives. Nor can it last for ever: a side that ends no
step for SETUP_S is given up (`interrupts.StepGuard`), its warm-up takes no longer either, and no further pair of runs
begins once what is around the measuring has taken AROUND_S in all, nor is a baseline run again for its losses. So a
trial of S seconds takes S and some minutes; the worst that code can do in its first pair (SETUP_S to set up, as much to
warm up, as much again in one step, and behind the last one) adds 40 minutes.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.capture import Recorder
from gpu_doctor.diagnosis import FEWEST_STEPS, warmup_rows, warmup_so_far
from gpu_doctor.recording import Recording

SETUP_S: Final = 300.0
"""Seconds that a side may take before its first step, and between two: a large model compiles for minutes, and a data
set of some GB downloads in as many."""
AROUND_S: Final = 300.0
"""Seconds of a trial that set-up, warm-up and putting back may take in all, for another pair of runs to begin."""


class SideBudget:
    """The seconds of a side that runs; told by its recorder when steps have ended."""

    def __init__(self, recorder: Recorder, seconds: float, steps: int | None = None) -> None:
        """Nothing of the budget is spent yet.

        Args:
            recorder: of the side; it gets its deadline once the side is warm.
            seconds: to measure.
            steps: of the side, of which a part may be warm-up; None = any number.
        """
        self.recorder = recorder
        self._seconds, self._steps = seconds, steps
        self._heard_s = 0.0
        self._settled = False
        recorder.listeners.hear_steps(self._steps_ended)

    def stage(self) -> str:
        """What the side is at before it measures: `setting up, 12 s so far`; empty from then on."""
        recorder = self.recorder
        if recorder.deadline_ns is not None or recorder.over.is_set():
            return ""
        took = formatting.countdown(recorder.elapsed_s())
        return f"warming up, {took} so far with the set-up" if recorder.started() else f"setting up, {took} so far"

    def patience_s(self) -> float:
        """Seconds for which the side may still go on without ending a step; not above 0 when it is to be given up."""
        return SETUP_S - (self.recorder.elapsed_s() - self._heard_s)

    def _steps_ended(self, now: int) -> None:
        """Sets the deadline as soon as the warm-up can be told apart, and moves it while further steps turn out slow.

        A side of fewer than FEWEST_STEPS steps cannot be judged, and whether the second step compiled once more is
        seen by the third: before that SETUP_S for the warm-up is its only limit.
        """
        recorder = self.recorder
        self._heard_s = recorder.elapsed_s()
        if self._settled:
            return
        rows = recorder.table.steps()
        if self._heard_s - rows.start_s[0] >= SETUP_S:
            self._settled, recorder.deadline_ns = True, recorder.deadline_ns or now
        elif len(rows) >= FEWEST_STEPS:
            warm, self._settled = warmup_so_far(rows, recorder.setup().training_workers, self._steps)
            end_s = float(rows.start_s[warm - 1] + rows.wall_s[warm - 1])
            recorder.deadline_ns = recorder.clock() + round(1e9 * (end_s + self._seconds - self._heard_s))


def before_s(recording: Recording) -> float:
    """Seconds of a side before its measured part: set-up and warm-up; all of them where no step ended."""
    steps = recording.steps
    if not len(steps):
        return recording.duration_s
    last = max(warmup_rows(steps, recording.setup.training_workers), 1) - 1
    return float(steps.start_s[last] + steps.wall_s[last])
