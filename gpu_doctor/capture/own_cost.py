"""What watching a run has cost so far, and a sentence where that is much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.capture.cost import BUDGET_SHARE
from gpu_doctor.capture.events import Log

SEARCHED_SHARE: Final = 0.1
"""Looking for models is done at the begin of a loop, as a rule: it is said where it does not end with that."""
FEW_SEARCHES: Final = 8
"""Optimizers that a loop may well have: each is looked for once, at its begin."""
WORTH_SAYING_S: Final = 1.0
"""Of a shorter loop the first steps, which cost more, are too large a part, and nobody waits for it."""


class OwnCost:
    """The account of one run."""

    def __init__(self, log: Log) -> None:
        """`log`: of the run."""
        self._log = log
        self.searched_s, self.searches = 0.0, 0
        """What looking for models took on the training thread, and how many optimizers were met."""
        self._threads: list[Callable[[], float]] = []

    def add_thread(self, used_s: Callable[[], float]) -> None:
        """`used_s` says the CPU seconds that a thread of ours, or other work of ours beside the events, has used."""
        self._threads.append(used_s)

    def searched(self, since: int) -> None:
        """The training thread has looked for models since then."""
        self.searched_s += (self._log.ours(since) - since) * 1e-9

    def whole_s(self, tapped_s: float) -> float:
        """That, and all else of ours."""
        return tapped_s + self.searched_s + sum(one() for one in self._threads)

    def too_dear(self, tapped_s: float, loop_s: float, steps: int) -> str:
        """A sentence where the taps alone cost more than the budget, which nothing can be done about; else empty.

        Args:
            tapped_s: what they cost.
            loop_s: wall-clock of all steps.
            steps: how many there were.
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
