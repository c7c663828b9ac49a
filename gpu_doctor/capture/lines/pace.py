"""Sets how often one of our threads does its work, and how much CPU time that may take."""

from __future__ import annotations

import math
from typing import Final

JITTER: Final = 0.2
"""Share of a period by which a single wait may differ from it, at random."""


class Pace:
    """Computes the wait until the next piece of work: one period, or longer if the work takes too much CPU time."""

    def __init__(
        self, period_s: float, longest_s: float, first_s: float, share: float, dearest_s: float = math.inf
    ) -> None:
        """Starts with no CPU time spent.

        Args:
            period_s: shortest period, in seconds.
            longest_s: longest period, in seconds.
            first_s: CPU seconds that all work may take in any case.
            share: share of the run so far that all work may take on top, in CPU seconds per second.
            dearest_s: most CPU seconds that are counted for one piece of work; more than that is Python's garbage
                collection, which runs anywhere.
        """
        self._period_s, self._longest_s, self._dearest_s = period_s, longest_s, dearest_s
        self._first_s, self._share = first_s, share
        self._spent_s = 0.0

    def after(self, cost_s: float, run_s: float, least_s: float = 0.0) -> float:
        """Returns the seconds until the next piece of work.

        Args:
            cost_s: CPU seconds that the last piece took.
            run_s: seconds since the run began.
            least_s: shortest period this time, in seconds, if longer than `period_s`.
        """
        self._spent_s += min(cost_s, self._dearest_s)
        late_s = (self._spent_s - self._first_s) / self._share - run_s
        return min(max(self._period_s, least_s, late_s), self._longest_s)
