"""How many batches lay ready when the loop asked a loader with workers for one, and what its epochs' edges take.

Counted in torch's own iterator: what the workers have put into its queue (with `pin_memory`, what was pinned) and what
came out of it before its turn. That is a short walk and a semaphore's value, and changes nothing. (The difference of
tasks given and outstanding says the same only until a stream's first worker has come to its end.)
"""

from __future__ import annotations

from typing import Any, Final

FEWEST_LOOKS: Final = 8
"""From fewer asks no share is made."""


class Stock:
    """Sums over the asks of all iterators over one loader."""

    __slots__ = ("_asks", "_blind", "_empty", "_looks", "_ready")

    def __init__(self) -> None:
        self._asks = self._empty = self._ready = self._looks = 0
        self._blind = False

    def look(self, iterator: Any, asks: int) -> None:
        """The loop is about to ask.

        Args:
            iterator: torch's. asks: for how many this look stands; 0 = it is not counted, as an iterator's first ask,
                at which nothing can lie ready.
        """
        if not asks or self._blind:
            return
        try:
            owed = len(iterator._task_info)
            early = sum(len(task) == 2 for task in iterator._task_info.values())
            ready = iterator._data_queue.qsize() + early
        except Exception:  # another kind of iterator, or a system whose queues tell no length (macOS)
            self._blind = True
            return
        if not owed:  # the ask that ends the epoch
            return
        self._looks += 1
        self._asks += asks
        if ready > 0:
            self._ready += asks * ready
        else:
            self._empty += asks

    @property
    def ready_batches(self) -> float | None:
        """Mean of the batches that lay ready; None = nobody could count, or too seldom."""
        return self._ready / self._asks if self._known else None

    @property
    def empty_share(self) -> float | None:
        """Part of the asks at which none did."""
        return self._empty / self._asks if self._known else None

    @property
    def _known(self) -> bool:
        return not self._blind and self._looks >= FEWEST_LOOKS


class Edges:
    """The edges of one loader at which workers were started; those that stay from epoch to epoch have one."""

    __slots__ = ("end_s", "ends", "first_s", "start_s", "starts")

    def __init__(self) -> None:
        self.starts = self.ends = 0
        self.start_s = self.first_s = self.end_s = 0.0

    def started(self, seconds: float) -> None:
        """`iter(loader)` has started the processes."""
        self.starts += 1
        self.start_s += seconds

    def began(self, seconds: float) -> None:
        """The first batch is there, so long after it was asked for."""
        self.first_s += seconds

    def ended(self, seconds: float) -> None:
        """The ask after the last batch has ended the processes, and waited for them."""
        self.ends += 1
        self.end_s += seconds
