"""When the log of a run is folded next."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.events import DUE_NS, FIRST_DUE, Log

MARKED_DUE: Final = 64
"""Events that are folded at once while steps are marked on the device: two or three steps."""
FEWEST_EVENTS: Final = 2
"""A step has no fewer: so many steps before a budget ends, the log is folded after so many times as many events."""


class FoldPlan:
    """At once where somebody counts single steps, before a budget can be overrun, else after many events."""

    def __init__(self, log: Log) -> None:
        """`log`: of the run; its `due` and `due_ns` are set here."""
        self._log = log
        self._each_step = False

    def fold_each_step(self, each: bool = True) -> bool:
        """Every step is folded when it ends, or not any more: somebody counts what lies between two of them.

        Returns:
            Whether each was before.
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
        """Says when.

        Args:
            now: the time.
            due: events after which it would be, were there nothing else.
            steps_left: of the budget, None = it is without end.
            deadline_ns: of the budget, as that.
            windows_due: events after which it is to be known whether the next steps are marked on the device.
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
