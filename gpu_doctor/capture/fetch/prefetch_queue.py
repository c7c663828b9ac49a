"""Counts the batches ready when the loop requests one from a loader with workers, and times its workers' starts.

The batches are counted in torch's own iterator: those in the workers' queue (with `pin_memory`, the pinned ones), and
those that left the queue before their turn. This reads a short dict and a semaphore's value, and changes nothing.
(Tasks sent minus tasks outstanding is the same number only until the first worker of a stream is done.)
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import Column

FEWEST_LOOKS: Final = 8
"""Fewest requests from which a mean or a share is computed."""
KEPT_LOOKS: Final = 4096
"""Most counts that are stored one by one, from the start of a run: a trial has no more, and in a longer run the batches
ready at its start and end hardly matter."""


class Stock:
    """Counts the batches ready at the requests of all iterators over one loader."""

    __slots__ = ("_asks", "_blind", "_empty", "_ready", "_seen", "_seen_after", "_taken")

    def __init__(self) -> None:
        self._asks = self._empty = self._ready = self._taken = 0
        self._blind = False
        self._seen, self._seen_after = array("q"), array("q")

    def look(self, iterator: Any, first: bool) -> None:
        """Counts the ready batches right before a request.

        Args:
            iterator: torch's iterator over the loader.
            first: True for the iterator's first request, when no batch can be ready: it is not counted.
        """
        if first or self._blind:
            return
        self._taken += 1
        try:
            outstanding, limit = len(iterator._task_info), iterator._prefetch_factor * iterator._num_workers
            early = sum(len(task) == 2 for task in iterator._task_info.values())
            ready = iterator._data_queue.qsize() + early
        except Exception:  # another kind of iterator, or a system whose queues have no length (macOS)
            self._blind = True
            return
        if not outstanding:  # the request that ends the epoch
            return
        self._asks += 1
        if len(self._seen) < KEPT_LOOKS and outstanding >= limit:  # else the sampler is exhausted
            self._seen.append(ready)
            self._seen_after.append(self._taken)
        self._ready += max(ready, 0)
        self._empty += ready <= 0

    @property
    def ready_batches(self) -> float | None:
        """Mean number of ready batches; None if they cannot be counted, or too few requests were made."""
        return self._ready / self._asks if self._known else None

    @property
    def empty_share(self) -> float | None:
        """Share of the requests at which no batch was ready; None as for `ready_batches`."""
        return self._empty / self._asks if self._known else None

    @property
    def looks(self) -> tuple[Column, Column]:
        """The first counts one by one: ready batches, and the batches that the loop had received by then."""
        if self._blind:
            return np.empty(0), np.empty(0)
        return np.array(self._seen, dtype=float), np.array(self._seen_after, dtype=float)

    @property
    def _known(self) -> bool:
        """True if ready batches can be counted, and enough requests were made."""
        return not self._blind and self._asks >= FEWEST_LOOKS


class Edges:
    """Times of starting and ending one loader's workers; persistent workers are started once."""

    __slots__ = ("end_s", "ends", "first_s", "start_s", "starts")

    def __init__(self) -> None:
        self.starts = self.ends = 0
        self.start_s = self.first_s = self.end_s = 0.0

    def started(self, seconds: float) -> None:
        """Counts a start of the processes, in `iter(loader)`, that took `seconds`."""
        self.starts += 1
        self.start_s += seconds

    def began(self, seconds: float) -> None:
        """Adds the wait for a first batch, in seconds."""
        self.first_s += seconds

    def ended(self, seconds: float) -> None:
        """Counts an end of the processes, at the request after the last batch, that took `seconds`."""
        self.ends += 1
        self.end_s += seconds
