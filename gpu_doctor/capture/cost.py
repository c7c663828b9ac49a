"""What watching a run may cost: one budget for the taps and for our own threads, shared out while the run goes on.

The taps cost what they cost: some microseconds a step. What they leave of the budget is for the threads. Each says what
it would take at its usual pace; where that is too much together, all go slower by the same factor.
"""

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
"""Own cost over the run's wall-clock, taps and threads together (the aim of benchmarks/overhead.py)."""
LEAST_SHARE: Final = 0.002
"""What the threads are left in any case, so that plots move and lines are seen: two milliseconds of a second."""
WINDOW_S: Final = 0.5
"""The taps' cost is looked at over so long: of a loop that has just begun, not of what the cell did before."""
_BLEND: Final = 0.3
ROUNDS: Final = 9
"""Events whose cost is measured at a run's begin, one by one;"""
EVICTED_BYTES: Final = 8 << 20
"""before each of them so much is copied, more than a core's own caches hold: between two events of a training loop our
code leaves them."""


class Governor:
    """The budget of one run. Asked by the threads themselves, each in its own name; nobody waits for anybody."""

    def __init__(self, tapped_s: Callable[[], float], elapsed_s: Callable[[], float]) -> None:
        """Nothing is measured before the first question.

        Args:
            tapped_s: what the taps have cost so far, in host seconds.
            elapsed_s: of the run so far.
        """
        self._tapped_s, self._elapsed_s = tapped_s, elapsed_s
        self._seen = 0.0, 0.0
        self._wanted: dict[str, float] = {}
        self._taps_share: float | None = None

    @property
    def taps_share(self) -> float:
        """Part of the wall-clock that the taps take now."""
        at, tapped = self._elapsed_s(), self._tapped_s()
        last_at, last_tapped = self._seen
        if at - last_at >= WINDOW_S:
            self._seen = at, tapped
            now = max(tapped - last_tapped, 0.0) / (at - last_at)
            before = self._taps_share
            self._taps_share = now if before is None else before + _BLEND * (now - before)
        return self._taps_share or 0.0

    def allowed(self, who: str, wanted: float) -> float:
        """The part of one core that a thread may take.

        Args:
            who: asks.
            wanted: what it would take at its usual pace.

        Returns:
            At least `wanted` where all that is wanted fits, else less; never 0: all of it where `wanted` is 0, as
            it is of a thread that has not measured itself yet.
        """
        self._wanted[who] = max(wanted, 0.0)
        room = max(BUDGET_SHARE - self.taps_share, LEAST_SHARE)
        if not self._wanted[who]:
            return room
        total = sum(self._wanted.copy().values())
        if total <= room:
            return room - (total - self._wanted[who])
        return room * self._wanted[who] / total


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
