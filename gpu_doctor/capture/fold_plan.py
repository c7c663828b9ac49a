"""Plans when the log of a run is folded next."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.events import DUE_NS, FIRST_DUE, Log

MARKED_DUE: Final = 64
"""Number of events that are folded at once while steps are marked on the device: two or three steps."""
FEWEST_EVENTS: Final = 2
"""Fewest events of a step: the log is folded before the remaining steps of a budget can pass."""


class FoldPlan:
    """Plans the folds: at each step if a listener needs it, before a budget can be overrun, else after many events."""

    def __init__(self, log: Log) -> None:
        """`log`: the run's event log, whose `due` and `due_ns` are set here."""
        self._log = log
        self._each_step = False

    def fold_each_step(self, each: bool = True) -> bool:
        """Switches folding after every single step on or off, for a listener that needs to see each step in time.

        Returns:
            True if it was on before.
        """
        before, self._each_step = self._each_step, each
        self._log.due = 1 if each else self._log.due
        return before

    def next(
        self,
        now: int,
        due: int = FIRST_DUE,
        steps_left: int | None = None,
        deadline_ns: int | None = None,
        windows_due: int | None = None,
    ) -> None:
        """Sets in the log when it is folded next: after a number of events, or at a time.

        Args:
            now: the present time, in ns.
            due: number of events after which to fold if nothing else demands it earlier.
            steps_left: remaining steps of the budget; None = no budget in steps.
            deadline_ns: end of the budget in time; None = no budget in time.
            windows_due: number of events after which to decide whether the next steps are marked on the device.
        """
        log = self._log
        if self._each_step:
            due = 1
        elif log.marker is not None:
            due = min(due, MARKED_DUE)
        elif steps_left is not None:
            due = min(due, max(FEWEST_EVENTS * steps_left, 1))
        log.due = due if windows_due is None else min(due, windows_due)
        log.due_ns = now + DUE_NS if deadline_ns is None else min(now + DUE_NS, max(deadline_ns, now))
