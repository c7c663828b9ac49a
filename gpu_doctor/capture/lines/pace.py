"""How often one of our threads does something, and what it may take."""

from __future__ import annotations

import math
from typing import Final

JITTER: Final = 0.2
"""Part of a period by which single ones differ from it."""


class Pace:
    """When something is done again: once a period, and later where that takes too much of the thread's core."""

    def __init__(
        self, period_s: float, longest_s: float, first_s: float, share: float, dearest_s: float = math.inf
    ) -> None:
        """Nothing was done yet.

        Args:
            period_s: the shortest period,
            longest_s: and the longest.
            first_s: CPU seconds that it may take in any case,
            share: and of the run so far.
            dearest_s: of a single one; what it takes above that is Python's garbage collection, which falls anywhere.
        """
        self._period_s, self._longest_s, self._dearest_s = period_s, longest_s, dearest_s
        self._first_s, self._share = first_s, share
        self._spent_s = 0.0

    def after(self, cost_s: float, run_s: float, least_s: float = 0.0) -> float:
        """Seconds until the next one.

        Args:
            cost_s: CPU seconds that this one took.
            run_s: seconds since the run began.
            least_s: a longer period.
        """
        self._spent_s += min(cost_s, self._dearest_s)
        late_s = (self._spent_s - self._first_s) / self._share - run_s
        return min(max(self._period_s, least_s, late_s), self._longest_s)
