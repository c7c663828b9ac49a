"""The cost of recording: the time that one event takes, and the most that all taps should take."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.events import BACKED, GRADIENT, Event

BUDGET_SHARE: Final = 0.01
"""Largest share of the loop's wall-clock that the taps should take (the aim of benchmarks/overhead.py)."""
MOST_TIMED: Final = 32
"""Number of newest timings of an empty tap from which the price is taken."""


class EventPrice:
    """Measures the time that one event takes, in ns: half the time of an empty tap, timed inside the running loop.

    The time depends on how much of the processor's caches the loop leaves to us: the same taps took 62 us in a small
    step and 116 us in a step with a hundred modules. So it cannot be measured outside the loop.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: host clock, in ns."""
        self._clock, self._events = clock, list[Event]()
        self._calls = _nothing, _empty_tap(clock, self._events)
        self._took: tuple[deque[int], ...] = deque(maxlen=MOST_TIMED), deque(maxlen=MOST_TIMED)
        self._turn = 1
        """Index of the call in `_calls` that is timed next."""

    def timed(self) -> int:
        """Times the empty tap, or in turn the bare call that it wraps; returns the present price in ns."""
        call, took, clock = self._calls[self._turn], self._took[self._turn], self._clock
        begin = clock()
        call()
        took.append(clock() - begin)
        self._turn = 1 - self._turn
        self._events.clear()
        bare, tapped = (statistics.median_low(times) if times else 0 for times in self._took)
        return max(tapped - bare, 0) // 2


def _nothing(*args: Any, **kwargs: Any) -> None:
    """The bare call that an empty tap wraps."""
    return


def _empty_tap(clock: Callable[[], int], events: list[Event]) -> Callable[..., None]:
    """Returns a tap on `_nothing` like the taps of every step: it records the begin and the end of the call."""
    note, thread, due_ns = events.append, get_ident(), clock() + (1 << 62)

    def call(*args: Any, **kwargs: Any) -> None:
        begun = False
        try:
            if get_ident() == thread:
                now = clock()
                note((GRADIENT, now, None))
                begun = now < due_ns
        except BaseException:
            raise
        try:
            return _nothing(*args, **kwargs)
        finally:
            if begun:
                note((BACKED, clock(), None))

    return call
