"""Measures how fast one core runs Python on this machine: thresholds in seconds of Python are as much longer there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

ROUNDS: Final = 300
"""Of a small loop, 10 to 30 us a try, long beside the clock's own cost."""
TRIES: Final = 3


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A figure of `Speeds`; none by a clock that did not move (Windows' counts 15 ms at once); see `after_run.py`."""
    found = round_s()
    return {"python_round_s": found} if found > 0 else {}


def round_s(clock: Callable[[], int] = time.thread_time_ns) -> float:
    """CPU seconds of a round of this thread alone, so that neither the GIL nor a taken core counts; the least of tries.

    Args:
        clock: CPU nanoseconds of the calling thread.
    """
    tries = []
    for _ in range(TRIES):
        begin, total = clock(), 0
        for one in range(ROUNDS):
            total += one * one
        tries.append(clock() - begin)
    return 1e-9 * min(tries) / ROUNDS
