"""How many batches lay ready when the loop asked a loader with workers for one, and what its epochs' edges take.

Counted in torch's own iterator: what the workers have put into its queue (with `pin_memory`, what was pinned) and what
came out of it before its turn. That is a short walk and a semaphore's value, and changes nothing. (The difference of
tasks given and outstanding says the same only until a stream's first worker has come to its end.)
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import Column

FEWEST_LOOKS: Final = 8
"""From fewer asks no share is made."""
KEPT_LOOKS: Final = 4096
"""So many looks are kept one by one, from the begin of a run: a trial has no more, and in a longer one what lay ready
at its ends is next to nothing."""


class Stock:
    """Sums over the asks of all iterators over one loader."""

    __slots__ = ("_asks", "_blind", "_empty", "_ready", "_seen", "_seen_after", "_taken")

    def __init__(self) -> None:
        self._asks = self._empty = self._ready = self._taken = 0
        self._blind = False
        self._seen, self._seen_after = array("q"), array("q")

    def look(self, iterator: Any, first: bool) -> None:
        """The loop is about to ask.

        Args:
            iterator: torch's.
            first: it is the iterator's first ask, at which nothing can lie ready: it is not counted.
        """
        if first or self._blind:
            return
        self._taken += 1
        try:
            owed, asked = len(iterator._task_info), iterator._prefetch_factor * iterator._num_workers
            early = sum(len(task) == 2 for task in iterator._task_info.values())
            ready = iterator._data_queue.qsize() + early
        except Exception:  # another kind of iterator, or a system whose queues tell no length (macOS)
            self._blind = True
            return
        if not owed:  # the ask that ends the epoch
            return
        self._asks += 1
        if len(self._seen) < KEPT_LOOKS and owed >= asked:  # else the sampler is at its end
            self._seen.append(ready)
            self._seen_after.append(self._taken)
        self._ready += max(ready, 0)
        self._empty += ready <= 0

    @property
    def ready_batches(self) -> float | None:
        """Mean of the batches that lay ready; None = nobody could count, or too seldom."""
        return self._ready / self._asks if self._known else None

    @property
    def empty_share(self) -> float | None:
        """Part of the asks at which none did."""
        return self._empty / self._asks if self._known else None

    @property
    def looks(self) -> tuple[Column, Column]:
        """The first looks one by one: batches that lay ready, and how many the loop had got before."""
        if self._blind:
            return np.empty(0), np.empty(0)
        return np.array(self._seen, dtype=float), np.array(self._seen_after, dtype=float)

    @property
    def _known(self) -> bool:
        return not self._blind and self._asks >= FEWEST_LOOKS


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
