"""What watching a run costs: the price of an event, and the sentence where the taps alone take too much of a loop."""

from __future__ import annotations

import functools
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.capture.events import BACKED, GRADIENT, Log
from gpu_doctor.capture.fence import Fence

BUDGET_SHARE: Final = 0.01
"""Of the loop's wall-clock: the taps should cost no more (the aim of benchmarks/overhead.py)."""
SEARCHED_SHARE: Final = 0.1
"""Looking for models is done at the begin of a loop, as a rule: it is said where it does not end with that."""
WORTH_SAYING_S: Final = 1.0
"""Of a shorter loop the first steps, which cost more, are too large a part, and nobody waits for it."""
ROUNDS: Final = 9
"""Events whose cost is measured at a run's begin, one by one;"""
EVICTED_BYTES: Final = 8 << 20
"""before each of them so much is copied, more than a core's own caches hold: between two events of a training loop our
code leaves them."""


def too_dear(tapped_s: float, loop_s: float, steps: int, searched_s: float = 0.0) -> str:
    """A sentence where the taps alone cost more than the budget, which nothing can be done about; else empty.

    Args:
        tapped_s: what they cost.
        loop_s: wall-clock of all steps.
        steps: how many there were.
        searched_s: what looking for the models of new optimizers took, of the same wall-clock.
    """
    if loop_s >= WORTH_SAYING_S and searched_s > SEARCHED_SHARE * loop_s:
        spent = formatting.share(searched_s / loop_s)
        return f"gpu_doctor spent {spent} of this loop finding the models of its optimizers."
    if steps < 1 or loop_s < WORTH_SAYING_S or tapped_s <= BUDGET_SHARE * loop_s:
        return ""
    took = formatting.seconds(loop_s / steps)
    return f"Recording takes about {formatting.share(tapped_s / loop_s)} of this loop: its steps take only {took}."


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
        if threading.get_ident() != log.thread:
            return None
        note((GRADIENT, clock(), None))
        return True

    def ends(token: Any, result: Any) -> None:
        note((BACKED, clock(), None))

    fenced = Fence(fail).around(bare, begins, ends)
    return max(_cold_ns(fenced) - _cold_ns(bare), 0.0) / 2


def _cold_ns(call: Callable[..., None]) -> float:
    """What a call takes, the median of some."""
    spent, other = [], bytearray(EVICTED_BYTES)
    for _ in range(ROUNDS):
        bytes(other)
        begin = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - begin)
    return statistics.median(spent)
