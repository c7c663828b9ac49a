"""Limits one side of a trial: it runs until it has measured enough, counted from the end of its warm-up.

Several short pairs of runs say more than one long pair, and the first figure comes soon. So a side ends as soon as it
has measured its seconds, the duration of its set-up and warm-up, and ENOUGH_STEPS steps; after LONGEST times its
seconds it ends without them. A cell that builds a model, downloads data or compiles may take the time it needs for
that, but not forever: a side that ends no step for SETUP_S is ended (`interrupts.StepGuard`), and its warm-up is no
longer either.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.capture import Recorder
from gpu_doctor.diagnosis import FEWEST_STEPS, warmup_rows, warmup_so_far
from gpu_doctor.recording import Recording
from gpu_doctor.trials.stretch import MARKED

SETUP_S: Final = 300.0
"""Seconds that a side may take before its first step, and between two steps: compiling a large model, or downloading a
data set of some GB, takes minutes."""
ENOUGH_STEPS: Final = 12
"""Measured steps that are enough: an interval needs `compare.ratio.FEWEST_ROWS` on both sides, and the two sides may
differ by some in their warm-up."""
WAVES: Final = 6
"""Workers that start together deliver together: a side lasts for so many rounds of all of them, or it measures how the
first ones came in (16 workers in 50 steps looked slower than 12 where they were 20 % faster)."""
LONGEST: Final = 8
"""Largest time that a side measures, as a multiple of its seconds."""


class SideBudget:
    """The budget of a running side, in seconds; its recorder calls it when steps have ended."""

    def __init__(self, recorder: Recorder, seconds: float, steps: int | None = None) -> None:
        """Starts an unspent budget.

        Args:
            recorder: recorder of the side; it gets its deadline after the warm-up.
            seconds: time to measure, in seconds; the side may take longer if that is not enough.
            steps: steps of the side, including warm-up; None for any number.
        """
        self.recorder = recorder
        self._seconds, self._steps = seconds, steps
        self._last_step_s = 0.0
        self._settled = False
        recorder.listeners.on_steps(self._steps_ended)

    def stage(self) -> str:
        """Returns the stage before measuring: `setting up, 12 s so far`; empty from then on."""
        recorder = self.recorder
        if recorder.deadline_ns is not None or recorder.over.is_set():
            return ""
        took = formatting.countdown(recorder.elapsed_s())
        return f"warming up, {took} so far with the set-up" if recorder.started() else f"setting up, {took} so far"

    def patience_s(self) -> float:
        """Returns the seconds that the side may still run without ending a step; 0 or less if it must be ended."""
        return SETUP_S - (self.recorder.elapsed_s() - self._last_step_s)

    def _steps_ended(self, now: int) -> None:
        """Sets the deadline as soon as the warm-up can be told apart, and moves it while further steps turn out slow.

        A side of fewer than FEWEST_STEPS steps cannot be judged, and whether the second step compiled once more is
        seen by the third: before that SETUP_S for the warm-up is its only limit.
        """
        recorder = self.recorder
        self._last_step_s = recorder.elapsed_s()
        if self._settled:
            return
        rows = recorder.table.steps()
        if self._last_step_s - rows.start_s[0] >= SETUP_S:
            self._settled, recorder.deadline_ns = True, recorder.deadline_ns or now
        elif len(rows) >= FEWEST_STEPS:
            workers = recorder.setup().training_workers
            warm, known = warmup_so_far(rows, workers, self._steps)
            warm_s = float(rows.start_s[warm - 1] + rows.wall_s[warm - 1])
            wanted = max(ENOUGH_STEPS, WAVES * workers) + (0 if recorder.marks is None else MARKED)
            enough = len(rows) - warm >= wanted
            most_s = LONGEST * self._seconds
            seconds = min(max(self._seconds, warm_s), most_s) if enough else most_s
            self._settled = known and enough
            recorder.deadline_ns = recorder.clock() + round(1e9 * (warm_s + seconds - self._last_step_s))


def before_s(recording: Recording) -> float:
    """Returns a side's seconds of set-up and warm-up; all of its seconds if no step ended."""
    steps = recording.steps
    if not len(steps):
        return recording.duration_s
    last = max(warmup_rows(steps, recording.setup.training_workers), 1) - 1
    return float(steps.start_s[last] + steps.wall_s[last])
