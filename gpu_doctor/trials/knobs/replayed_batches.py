"""A few batches of a loader, held in memory and delivered again and again, as by a loader that costs nothing."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpu_doctor import formatting
from gpu_doctor.trials.knobs.knob import Refused

BATCHES: Final = 8
"""Batches that are held, at most:"""
FETCH_S: Final = 1.0
"""after so many seconds of fetching no further one is fetched, as soon as there are two."""
_PLAIN: Final = (torch.Tensor, np.ndarray, np.generic, int, float, complex, bool, str, bytes, type(None))
_ENDLESS: Final = 1 << 40
"""Batches of an epoch whose length nobody knows: the trial's budget ends it."""


class Replayed(Dataset[Any]):
    """The batches of one loader as a data set of whole batches.

    Each is handed out in new containers, since loops take entries out of theirs, and as new tensors, since loops ask
    for gradients of theirs. The memory of the tensors is the same, so that nothing is copied.
    """

    def __init__(self, batches: list[Any], length: int) -> None:
        """Holds batches.

        Args:
            batches: batches that the loader made.
            length: batches of an epoch.

        Raises:
            Refused: if a batch holds anything but tensors, arrays, numbers and text, such as a generator.
        """
        self._batches = batches
        self._length = length if batches else 0
        self._versions = [[(tensor, tensor._version) for tensor in _tensors(batch)] for batch in batches]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        number = index % len(self._batches)
        if any(tensor._version != version for tensor, version in self._versions[number]):
            raise Refused(
                "The loop changes its batches in place, so they cannot be delivered twice: write x = x / 255 in the "
                "place of x /= 255, say."
            )
        return _anew(self._batches[number])

    def iterator(self) -> Iterator[Any]:
        """Returns an iterator of torch's own class, which the taps hear as they hear that of the user's loader."""
        # Not iter(): the loader that is being opened is the user's.
        return DataLoader(self, batch_size=None, shuffle=False, collate_fn=_as_it_is)._get_iterator()


def replayed(
    loader: DataLoader[Any], fetch: Iterator[Any], pull: Callable[[Any], Any], seen: int | None = None
) -> Replayed:
    """Fetches a few batches of a loader.

    Args:
        loader: loader whose number of batches an epoch keeps.
        fetch: a fresh iterator of it.
        pull: takes the next batch from the iterator, if it is one of torch's.
        seen: batches of an epoch as a run has counted them, for a loader that has no length; None = it has not.

    Raises:
        Refused: as `Replayed`. Whatever the loader raises.
    """
    begin, batches, whole = time.perf_counter(), list[Any](), False
    take = pull if type(fetch).__next__ is _BaseDataLoaderIter.__next__ else next
    while len(batches) < BATCHES and not (len(batches) >= 2 and time.perf_counter() - begin > FETCH_S):
        try:
            batches.append(take(fetch))
        except StopIteration:
            whole = True
            break
    try:
        length = len(loader)
    except TypeError:  # an IterableDataset without a length
        length = len(batches) if whole else seen or _ENDLESS
    return Replayed(batches, length)


def _as_it_is(batch: Any) -> Any:
    return batch


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch whose changes torch counts."""
    if isinstance(batch, torch.Tensor):
        if not batch.is_inference():
            yield batch
    elif isinstance(batch, Mapping):
        for item in batch.values():
            yield from _tensors(item)
    elif isinstance(batch, (list, tuple)):
        for item in batch:
            yield from _tensors(item)
    elif not isinstance(batch, _PLAIN):
        raise Refused(
            f"A batch holds {formatting.article(type(batch).__name__)}, which may carry state from batch to batch: an "
            "ideal loader is tried with tensors, arrays, numbers and text alone."
        )


def _anew(batch: Any) -> Any:
    if type(batch) is torch.Tensor:
        return batch.detach().requires_grad_(batch.requires_grad)
    if isinstance(batch, MutableMapping):
        fresh = copy.copy(batch)
        for name, item in batch.items():
            if isinstance(item, (torch.Tensor, Mapping, list, tuple)):
                fresh[name] = _anew(item)
        return fresh
    if isinstance(batch, list):
        return [_anew(item) for item in batch]
    if isinstance(batch, tuple):
        inner = [_anew(item) for item in batch]
        return type(batch)(*inner) if hasattr(batch, "_fields") else tuple(inner)
    return batch
