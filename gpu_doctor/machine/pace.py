"""How fast one core runs Python right now: a small loop, timed in CPU seconds of the poller's thread.

What was measured on one machine (handing a batch over, starting a worker) takes as much longer on a slow one; a virtual
machine whose neighbours share its cores is a slow one at some times and a fast one at others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpu_doctor.machine.probe import ProbeScope, Reader
from gpu_doctor.recording import Metric

ROUNDS: Final = 300
"""Of the loop, 10 to 30 us a try: long beside the clock's own cost, short beside the time between two readings."""
TRIES: Final = 3
"""The first after a sleep finds cold caches and takes a third longer; the fastest of three is the machine's."""
ROUND = Metric("python_round_ns", "ns", "CPU time of one round of a small Python loop", "detail")


def round_ns(clock: Callable[[], int] = time.thread_time_ns) -> float:
    """CPU nanoseconds of a round: of this thread alone, so that neither the GIL nor a taken core counts.

    Args:
        clock: CPU nanoseconds of the calling thread.
    """
    fastest = math.inf
    for _ in range(TRIES):
        begin, total = clock(), 0
        for one in range(ROUNDS):
            total += one * one
        fastest = min(fastest, (clock() - begin) / ROUNDS)
    return fastest


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields the reader; a clock that did not move (Windows counts CPU time in 15 ms) is no reading."""
    yield lambda: [(ROUND, found)] if (found := round_ns()) > 0 else []
