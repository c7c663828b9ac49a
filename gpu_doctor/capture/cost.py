"""What watching a run costs: the price of an event, and what the taps should cost at most."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.events import BACKED, GRADIENT, Event

BUDGET_SHARE: Final = 0.01
"""Of the loop's wall-clock: the taps should cost no more (the aim of benchmarks/overhead.py)."""
MOST_TIMED: Final = 32
"""Empty taps whose time is remembered."""


class EventPrice:
    """What an event costs the loop, in ns: half of an empty tap, as long as it takes where the loop's own taps run.

    How long our code takes depends on what the loop has left of the processor's caches: the same taps took 62 us of a
    small step and 116 of one with a hundred modules. So no measurement elsewhere says it.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: of the host, ns."""
        self._clock, self._events = clock, list[Event]()
        self._calls = _nothing, _empty_tap(clock, self._events)
        self._took: tuple[deque[int], ...] = deque(maxlen=MOST_TIMED), deque(maxlen=MOST_TIMED)
        self._turn = 1
        """Which of the two calls is timed next."""

    def timed(self) -> int:
        """Times an empty tap, or in its turn the bare call that it stands around; returns the price by now."""
        call, took, clock = self._calls[self._turn], self._took[self._turn], self._clock
        begin = clock()
        call()
        took.append(clock() - begin)
        self._turn = 1 - self._turn
        self._events.clear()
        bare, tapped = (statistics.median_low(ones) if ones else 0 for ones in self._took)
        return max(tapped - bare, 0) // 2


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _empty_tap(clock: Callable[[], int], events: list[Event]) -> Callable[..., None]:
    """A tap on `_nothing`, as those that every step goes through: it notes that the call begins, and that it ends."""
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
