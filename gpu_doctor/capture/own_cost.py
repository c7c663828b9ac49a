"""Counts what recording a run has cost so far, and writes a note if that is much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.capture.cost import BUDGET_SHARE
from gpu_doctor.capture.events import Log

SEARCHED_SHARE: Final = 0.1
"""Share of the loop above which the search for models is noted: it should end soon after the loop begins."""
FEW_SEARCHES: Final = 8
"""Number of searches that is normal: one for each optimizer, at the loop's start."""
WORTH_SAYING_S: Final = 1.0
"""Shortest loop, in seconds, for which costs are noted: in a shorter one the dearer first steps weigh too much."""


class OwnCost:
    """Counts our own costs in one run."""

    def __init__(self, log: Log) -> None:
        """`log`: the run's event log."""
        self._log = log
        self.searched_s, self.searches = 0.0, 0
        """Seconds that the search for models took on the training thread, and number of optimizers searched for."""
        self._threads: list[Callable[[], float]] = []

    def add_thread(self, used_s: Callable[[], float]) -> None:
        """Adds a cost besides the events: `used_s` returns the CPU seconds that a thread of ours has used."""
        self._threads.append(used_s)

    def searched(self, since: int) -> None:
        """Counts the time since `since` (ns) as a search for models on the training thread."""
        self.searched_s += (self._log.ours(since) - since) * 1e-9

    def whole_s(self, tapped_s: float) -> float:
        """Returns the seconds of all our work: the taps' `tapped_s`, the search for models, and the threads."""
        return tapped_s + self.searched_s + sum(used_s() for used_s in self._threads)

    def too_dear(self, tapped_s: float, loop_s: float, steps: int) -> str:
        """Returns a note if the search for models, or the taps, took too much of the loop; else an empty string.

        Args:
            tapped_s: time that the taps took, in seconds.
            loop_s: wall-clock of all steps, in seconds.
            steps: number of steps.
        """
        if steps < 1 or loop_s < WORTH_SAYING_S:
            return ""
        if self.searches > FEW_SEARCHES and self.searched_s > SEARCHED_SHARE * loop_s:
            spent = formatting.share(self.searched_s / loop_s)
            return f"gpu_doctor spent {spent} of this loop finding the models of its optimizers."
        if tapped_s <= BUDGET_SHARE * loop_s:
            return ""
        took = formatting.seconds(loop_s / steps)
        return f"Recording takes about {formatting.share(tapped_s / loop_s)} of this loop: its steps take only {took}."
