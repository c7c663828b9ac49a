"""Times a stretch of a side's steps on the host's clock, from an idle device to an idle device.

A host that runs ahead of its device only launches: its own clock then times the launching. So a side waits for the
device when its warm-up is over and when its last step has ended, and nowhere between. Where the loop trains on the CPU
nothing is waited for.

Marks on the device cost a step some tens of microseconds, which would count for a loop of short steps. So the steps
right after the warm-up are marked, and the stretch behind them is not.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture import Recorder
from gpu_doctor.diagnosis import warmup_so_far
from gpu_doctor.recording import Recording, Timed

ASIDE: Final = 0.01
"""Part of a stretch that may lie between its last step and the last wait: what the cell does behind a loop that ends by
itself is none of the loop's. A hundredth is within what equal runs differ by (`compare.effect.SURELY`)."""


MARKED: Final = 9
"""Steps that are marked between warm-up and stretch, as many as in a later window of a run,"""
MARKED_SHARE: Final = 0.25
"""and at most this part of the steps that are left."""


class Stretch:
    """Waits for the device at both ends of the timed steps; its recorder calls it when steps have ended."""

    def __init__(self, recorder: Recorder) -> None:
        """Starts without a stretch."""
        self._recorder = recorder
        self._settled = False
        self._marked_until: int | None = None
        """Number of steps after which the stretch begins, if steps are marked before it."""
        self._folded_each: bool | None = None
        """True if another listener wants every step to be folded when it ends; None if unknown."""
        self._first: int | None = None
        """Number of the first measured step."""
        self._began_s = self._left_s = self._ended_s = 0.0
        """Times in the run, in seconds: end of the first wait, start of the last wait, end of the last wait."""
        self._steps: int | None = None
        """Number of steps that had ended by the last wait; None for all steps, if the loop ended by itself."""
        self._ended = False
        recorder.listeners.on_steps(self._steps_ended)
        recorder.listeners.on_budget_spent(lambda: self._end(recorder.step_count))

    def loop_over(self) -> None:
        """Closes the stretch when the code has ended: its last step may have ended unnoticed."""
        if not self._recorder.ending:
            self._end(None)

    def timed(self, recording: Recording) -> Timed | None:
        """Returns the timed stretch of the recording; None if there was no device, or no moment, to wait."""
        if self._first is None or not self._ended:
            return None
        steps = recording.steps
        ordinal = steps.count.cumsum()
        last = len(steps) if self._steps is None else int((ordinal <= self._steps).sum())
        first = int((ordinal <= self._first).sum())
        if first >= last:
            return None
        end_s, wall_s = float(steps.start_s[last - 1] + steps.wall_s[last - 1]), self._ended_s - self._began_s
        if self._left_s - end_s > ASIDE * wall_s:
            return None
        return Timed(float(steps.start_s[first]), end_s, wall_s)

    def _steps_ended(self, now: int) -> None:
        """Waits while all steps so far are warm-up, so that the last such wait is the one at the stretch's begin."""
        recorder = self._recorder
        if self._marked_until is not None and recorder.step_count >= self._marked_until:
            self._after_marks()
        if self._settled or recorder.over.is_set() or recorder.ending:
            return
        if not recorder.device_waits.possible:
            self._settled = True
            return
        if self._folded_each is None:
            self._folded_each = recorder.plan.fold_each_step()
            if recorder.marks is None:  # the step may have ended a while ago
                return
        rows = recorder.table.steps()
        warm, self._settled = warmup_so_far(rows, recorder.setup().training_workers, recorder.max_steps)
        if self._first is None or warm >= len(rows):
            self._begin()
        if self._settled and not self._marks_first():
            recorder.plan.fold_each_step(self._folded_each)

    def _marks_first(self) -> bool:
        """True if some steps are marked before the stretch begins."""
        recorder = self._recorder
        if self._first is None or recorder.marks is None:
            return False
        left = MARKED / MARKED_SHARE if recorder.max_steps is None else recorder.max_steps - recorder.step_count
        self._marked_until = recorder.step_count + min(MARKED, round(MARKED_SHARE * left))
        return True

    def _after_marks(self) -> None:
        """Starts the timed stretch when the marked steps have ended."""
        recorder, self._marked_until = self._recorder, None
        if recorder.over.is_set() or recorder.ending:
            return
        recorder.mark_no_more()
        self._begin()
        recorder.plan.fold_each_step(bool(self._folded_each))

    def _begin(self) -> None:
        recorder = self._recorder
        if recorder.device_waits.pause():
            self._first, self._began_s = recorder.step_count, recorder.elapsed_s()
        else:  # it trains on the CPU, or its device cannot be waited for: nothing is tried again
            self._first, self._settled = None, True

    def _end(self, steps: int | None) -> None:
        recorder = self._recorder
        if self._first is None or self._ended:
            return
        self._left_s = recorder.elapsed_s()
        if recorder.device_waits.wait():
            self._steps, self._ended, self._ended_s = steps, True, recorder.elapsed_s()
