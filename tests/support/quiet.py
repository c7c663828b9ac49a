"""How busy other programs keep the machine while a test runs that needs it quiet.

A test marked `quiet` that fails while they used more than `BUSY_SHARE` of the cores is neither passed nor failed: it is
inconclusive. One that passes has passed; nothing waits for a quiet moment, and nothing is measured twice.
"""

from __future__ import annotations

import os
import time
from typing import Final

import psutil

BUSY_SHARE: Final = 0.25
"""Half a core of two: beside it a loop that needs both takes a third longer, which is the width that forecasts have."""


class Neighbours:
    """What other programs, and a host that takes the cores away, use from now on."""

    def __init__(self) -> None:
        self._at, self._all, self._own = time.monotonic(), _all_s(), _own_s()

    def share(self) -> float:
        """Part of all cores that is not ours, 0 to 1, since this was made."""
        seconds = (time.monotonic() - self._at) * (os.cpu_count() or 1)
        others = (_all_s() - self._all) - (_own_s() - self._own)
        return min(max(others / seconds, 0.0), 1.0) if seconds > 0 else 0.0


def ended_cpu_s() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    return sum(os.times()[:4])


def _all_s() -> float:
    """CPU seconds of the whole machine that somebody computed in, stolen ones included."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _own_s() -> float:
    """Those of this process and of its children, ended or not."""
    alive = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            alive += sum(child.cpu_times()[:4])  # and what its own children used that have ended: Ray's workers
        except psutil.Error:
            continue
    return ended_cpu_s() + alive
