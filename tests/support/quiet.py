"""Waiting until other programs leave the machine to a test that compares clocks."""

from __future__ import annotations

import os
import time
from typing import Final

import psutil
import pytest

BUSY_SHARE: Final = 0.25
"""Part of all cores that other programs may use. Half a core of two: beside it a loop that needs both takes a third
longer, which is the width that forecasts have."""
LOOK_S: Final = 0.25
"""How long the machine is watched at a time."""
MOST_WAIT_S: Final = 30.0


def wait_for_a_quiet_moment() -> None:
    """Returns as soon as other programs used at most `BUSY_SHARE` of the cores for `LOOK_S`.

    Raises:
        pytest.fail.Exception: if they used more for `MOST_WAIT_S`.
    """
    deadline = time.monotonic() + MOST_WAIT_S
    while (share := _others_share()) > BUSY_SHARE:
        if time.monotonic() > deadline:
            pytest.fail(
                f"Other programs used {100 * share:.0f} % of the cores for {MOST_WAIT_S:.0f} s: this test compares "
                "clocks and needs a quiet machine. End them, then run it again.",
                pytrace=False,
            )


def cpu_s() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    return sum(os.times()[:4])


def _others_share() -> float:
    """Part of all cores (0 to 1) that other programs, or a host that takes cores away, use for `LOOK_S`."""
    begin, everyone, own = time.monotonic(), _machine_s(), _own_s()
    time.sleep(LOOK_S)
    seconds = (time.monotonic() - begin) * (os.cpu_count() or 1)
    others = (_machine_s() - everyone) - (_own_s() - own)
    return min(max(others / seconds, 0.0), 1.0)


def _machine_s() -> float:
    """CPU seconds in which the machine computed, stolen ones included."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


def _own_s() -> float:
    """CPU seconds of this process and of its children, ended or not."""
    alive = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            alive += sum(child.cpu_times()[:4])  # and what its own children used that have ended: Ray's workers
        except psutil.Error:
            continue
    return cpu_s() + alive
