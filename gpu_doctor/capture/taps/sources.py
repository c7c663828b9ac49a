"""The dataloader tap's state of one iterator over a loader: the size of its batches and the counters of its fetches."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Any, Final

import torch

from gpu_doctor.capture.describe.batches import holds_several, sample_count
from gpu_doctor.capture.fetch.prefetch_queue import ReadyBatches, WorkerStarts
from gpu_doctor.capture.fetch.tally import Tally
from gpu_doctor.capture.sources import Pulled
from gpu_doctor.capture.taps.batch_samples import BatchSamples

_numbers: Final = count(1)


class LoaderSource:
    """State of one iterator over a loader, apart from its times, which the step clock has."""

    __slots__ = (
        *("batch_size", "full", "iterator", "key", "ref", "requested_ns", "sampled", "starts", "stock", "taken"),
        *("pulled", "tally", "total", "whole"),
    )

    def __init__(self, iterator: Any, key: str, loader: Any) -> None:
        self.pulled: Pulled = next(_numbers), key or None
        """Number of the iterator and its loader's key, in the form that events carry."""
        self.ref = weakref.ref(iterator)
        self.iterator = id(iterator)
        self.key = key
        """Name of the loader in this run."""
        self.tally: Tally | None = None
        """Counter of its fetches, if this process makes them."""
        self.stock: ReadyBatches | None = None
        """Counter of the batches that the loader's workers have ready, if workers fetch."""
        self.starts: WorkerStarts | None = None
        """Times to start and to stop workers, if this iterator has started any."""
        self.sampled: BatchSamples | None = None
        """Samples of its batches."""
        self.taken = 0
        """Batches delivered to the loop so far."""
        self.requested_ns = 0
        """Time of the last request, in ns."""
        self.batch_size = self.total = self.whole = 0
        """Samples in a full batch, samples in a pass, and full batches in a pass; 0 if they do not follow from the
        sampler's length."""
        if loader is not None and _counted(loader):
            self.batch_size, self.total = int(loader.batch_size), len(loader.sampler)
            self.whole = self.total // self.batch_size
        self.full = float(self.batch_size)

    def ended(self, error: BaseException, seconds: float) -> None:
        """Records that the request raised after `seconds`. At the end of a pass, that includes stopping the workers."""
        starts, self.starts = self.starts, None
        stay = getattr(self.ref(), "_persistent_workers", False)
        if starts is not None and isinstance(error, StopIteration) and not stay:
            starts.ended(seconds)

    def samples(self, batch: Any) -> float:
        """Returns the number of samples in the batch just delivered: by the sampler if possible, else by its tensors.

        The first batch shows if each item of the data set is several samples (crops of a volume), which a collate
        function joins: then the sampler does not count samples.
        """
        if self.batch_size and not self.taken and holds_several(batch, min(self.batch_size, self.total)):
            self.batch_size = self.whole = 0
        if self.batch_size:
            remaining = self.total - self.taken * self.batch_size
            if remaining > 0:
                return float(min(self.batch_size, remaining))
        return sample_count(batch)


def _counted(loader: Any) -> bool:
    """Returns True if batch sizes follow from batch_size and the sampler's length alone."""
    try:
        plain = type(loader.batch_sampler) is torch.utils.data.BatchSampler
        return plain and isinstance(loader.batch_size, int) and len(loader.sampler) > 0
    except Exception:
        return False
