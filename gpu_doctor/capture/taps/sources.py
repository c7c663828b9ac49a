"""An iterator over a loader, as the dataloader tap knows it: what its batches hold, where its fetches are counted."""

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

_numbers: Final = count(1)


class LoaderSource:
    """What is known of an iterator over a loader besides what the step clock makes of it."""

    __slots__ = (
        *("asked_ns", "batch_size", "edges", "full", "iterator", "key", "looks", "ref", "stock", "taken", "tally"),
        *("pulled", "total", "whole"),
    )

    def __init__(self, iterator: Any, key: str, loader: Any) -> None:
        self.pulled: Pulled = next(_numbers), key or None
        """The iterator's number and its loader's key, as events carry them."""
        self.ref = weakref.ref(iterator)
        self.iterator = id(iterator)
        self.key = key
        self.tally: Tally | None = None
        """Takes its fetches, where this process makes them."""
        self.stock: Stock | None = None
        """Of the loader, where workers fetch."""
        self.edges: Edges | None = None
        """Where this iterator has started workers."""
        self.looks: BatchLooks | None = None
        """Looks at some of its batches."""
        self.taken = 0
        """Batches that the loop has got."""
        self.asked_ns = 0
        self.batch_size = self.total = self.whole = 0
        if loader is not None and _counted(loader):
            self.batch_size, self.total = int(loader.batch_size), len(loader.sampler)
            self.whole = self.total // self.batch_size
        self.full = float(self.batch_size)

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
