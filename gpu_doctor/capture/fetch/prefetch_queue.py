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

FEWEST_REQUESTS: Final = 8
"""Fewest requests from which a mean or a share is computed."""
MOST_COUNTS: Final = 4096
"""Most counts that are stored one by one, from the start of a run: a trial has no more, and in a longer run the batches
ready at its start and end hardly matter."""


class ReadyBatches:
    """Counts the batches ready at the requests of all iterators over one loader."""

    __slots__ = ("_counts", "_counts_after", "_empty", "_ready", "_received", "_requests", "_unreadable")

    def __init__(self) -> None:
        self._requests = self._empty = self._ready = self._received = 0
        self._unreadable = False
        self._counts, self._counts_after = array("q"), array("q")

    def count(self, iterator: Any, first: bool) -> None:
        """Counts the ready batches right before a request.

        Args:
            iterator: torch's iterator over the loader.
            first: True for the iterator's first request, when no batch can be ready: it is not counted.
        """
        if first or self._unreadable:
            return
        self._received += 1
        try:
            outstanding, limit = len(iterator._task_info), iterator._prefetch_factor * iterator._num_workers
            early = sum(len(task) == 2 for task in iterator._task_info.values())
            ready = iterator._data_queue.qsize() + early
        except Exception:  # another kind of iterator, or a system whose queues have no length (macOS)
            self._unreadable = True
            return
        if not outstanding:  # the request that ends the epoch
            return
        self._requests += 1
        if len(self._counts) < MOST_COUNTS and outstanding >= limit:  # else the sampler is exhausted
            self._counts.append(ready)
            self._counts_after.append(self._received)
        self._ready += max(ready, 0)
        self._empty += ready <= 0

    @property
    def ready_batches(self) -> float | None:
        """Mean number of ready batches; None if they cannot be counted, or too few requests were made."""
        return self._ready / self._requests if self._known else None

    @property
    def empty_share(self) -> float | None:
        """Share of the requests at which no batch was ready; None as for `ready_batches`."""
        return self._empty / self._requests if self._known else None

    @property
    def counts(self) -> tuple[Column, Column]:
        """The first counts one by one: ready batches, and the batches that the loop had received by then."""
        if self._unreadable:
            return np.empty(0), np.empty(0)
        return np.array(self._counts, dtype=float), np.array(self._counts_after, dtype=float)

    @property
    def _known(self) -> bool:
        """True if ready batches can be counted, and enough requests were made."""
        return not self._unreadable and self._requests >= FEWEST_REQUESTS


class WorkerStarts:
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
