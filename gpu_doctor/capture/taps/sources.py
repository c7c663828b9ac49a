"""One iterator over a loader, as the dataloader tap knows it: what its batches hold, and which fetches are metered."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Any, Final

import torch

from gpu_doctor.capture.describe.batches import holds_several, sample_count
from gpu_doctor.capture.fetch.prefetch_queue import Edges, Stock
from gpu_doctor.capture.fetch.tally import Tally
from gpu_doctor.capture.sources import Pulled
from gpu_doctor.capture.taps.batch_looks import BatchLooks

LONG_FETCH_S: Final = 2e-3
"""Metering a fetch takes some 10 us in a loop: every fetch of so long is metered,"""
SKIPPED: Final = 10
"""of shorter ones one in eleven (a prime, so as not to beat with periods in the data)."""
FIRST_FETCHES: Final = 64
"""So many fetches are metered before any is left out: a trial has no more."""
STOCK_SKIPPED: Final = 4
"""Where workers fetch there is nothing to meter here: their stock is looked at, at one ask in five."""


_numbers: Final = count(1)


class LoaderSource:
    """What is known of an iterator over a loader besides what the step clock makes of it."""

    __slots__ = (
        *("asked_ns", "batch_size", "edges", "fetcher", "full", "iterator", "key", "looked", "ref", "stock", "taken"),
        *("looks", "pulled", "tally", "total", "unmetered", "whole"),
    )

    def __init__(
        self,
        iterator: Any,
        key: str,
        loader: Any,
        tally: Tally | None = None,
        stock: Stock | None = None,
    ) -> None:
        self.pulled: Pulled = next(_numbers), key or None
        """The iterator's number and its loader's key, as events carry them."""
        self.ref = weakref.ref(iterator)
        self.iterator = id(iterator)
        self.key = key
        self.tally = tally
        self.stock = stock
        self.edges: Edges | None = None
        """Where this iterator has started workers."""
        self.looks: BatchLooks | None = None
        """Looks at some of its batches."""
        self.fetcher: Any = None
        """Carries the meter for the fetch that runs now; None = it is not metered."""
        self.taken = 0
        """Batches that the loop has got."""
        self.looked = 0
        """Of them, at the last look at the stock."""
        self.asked_ns = 0
        self.batch_size = self.total = self.whole = self.unmetered = 0
        if loader is not None and _counted(loader):
            self.batch_size, self.total = int(loader.batch_size), len(loader.sampler)
            self.whole = self.total // self.batch_size
        self.full = float(self.batch_size)

    def skipped(self) -> int:
        """How many of the next fetches in this process are not metered, so that metering stays below 0.5 % of them."""
        if self.tally is None or self.tally.count < FIRST_FETCHES or self.tally.mean_s >= LONG_FETCH_S:
            return 0
        return SKIPPED if self.stock is None else STOCK_SKIPPED

    def look(self, iterator: Any) -> None:
        """The loop is about to ask: how much lies ready, for all asks since the last look."""
        stock, taken = self.stock, self.taken
        if stock is not None:
            stock.look(iterator, taken - self.looked)
            self.looked = taken

    def ended(self, error: BaseException, seconds: float) -> None:
        """The ask raised, after so long: where there is no further batch, it has ended workers that do not stay."""
        edges, self.edges = self.edges, None
        stay = getattr(self.ref(), "_persistent_workers", False)
        if edges is not None and isinstance(error, StopIteration) and not stay:
            edges.ended(seconds)

    def samples(self, batch: Any) -> float:
        """Samples in the batch just delivered: by the sampler's count where that is sure, else by its tensors.

        The first batch tells whether every item of the data set is several samples, which a collate function makes one
        batch of (crops of a volume): then the sampler's count is not that of the samples.
        """
        if self.batch_size and not self.taken and holds_several(batch, min(self.batch_size, self.total)):
            self.batch_size = self.whole = 0
        if self.batch_size:
            left = self.total - self.taken * self.batch_size
            if left > 0:
                return float(min(self.batch_size, left))
        return sample_count(batch)


def _counted(loader: Any) -> bool:
    """Whether batch sizes follow from batch_size and the sampler's length alone."""
    try:
        plain = type(loader.batch_sampler) is torch.utils.data.BatchSampler
        return plain and isinstance(loader.batch_size, int) and len(loader.sampler) > 0
    except Exception:
        return False
