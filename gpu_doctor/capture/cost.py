"""What watching a run costs: the price of an event, and what the taps should cost at most."""

from __future__ import annotations

import functools
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.events import BACKED, GRADIENT, OWN, Log
from gpu_doctor.capture.fence import Fence

BUDGET_SHARE: Final = 0.01
"""Of the loop's wall-clock: the taps should cost no more (the aim of benchmarks/overhead.py)."""
ROUNDS: Final = 9
"""Events whose cost is measured at a run's begin, one by one;"""
EVICTED_BYTES: Final = 8 << 20
"""before each of them so much is copied, more than a core's own caches hold: between two events of a training loop our
code leaves them."""


@functools.lru_cache(maxsize=1)
def event_cost_ns() -> float:
    """What an event costs a loop on this machine, in ns: half of a fenced call that notes its begin and its end.

    Measured once in a process, with cold caches, less what a bare call takes so.
    """

    def bare(*args: Any, **kwargs: Any) -> None:
        return None

    def fail(error: Exception) -> None:
        raise error

    log = Log()
    note, clock = log.note, log.clock

    def begins(*args: Any, **kwargs: Any) -> bool | None:
        begin = clock()
        if threading.get_ident() != log.thread:
            return None
        now = clock()
        note((GRADIENT + OWN * (now - begin), now, None))
        return True

    def ends(token: Any, result: Any) -> None:
        note((BACKED, clock(), None))

    fenced = Fence(fail).around(bare, begins, ends)
    taken = _cold_ns(fenced) - _cold_ns(bare)
    return max(taken - statistics.median(code // OWN for code, _, _ in log.events[::2]), 0.0) / 2


def _cold_ns(call: Callable[..., None]) -> float:
    """What a call takes, the median of some."""
    spent, other = [], bytearray(EVICTED_BYTES)
    for _ in range(ROUNDS):
        bytes(other)
        begin = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - begin)
    return statistics.median(spent)
