"""How many samples a batch holds and how many bytes, whatever container it comes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

_DEEPEST: Final = 4
_NAN: Final = float("nan")
_SAMPLE_DIMS: Final = 3
"""Dimensions of a batch of crops, at least: samples, and two of their own (channels and length, height and width)."""
_COUNTS: Final = ("num_graphs", "batch_size")
"""Attributes by which batch objects of graph and text libraries tell their size."""


def tensors_in(batch: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Every tensor in a nest of mappings, sequences, dataclasses and plain objects, in their order."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth >= _DEEPEST or isinstance(batch, (str, bytes, int, float, complex, type(None))):
        return
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value, depth + 1)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_in(value, depth + 1)
    elif hasattr(batch, "__dict__"):
        for value in vars(batch).values():
            yield from tensors_in(value, depth + 1)
    elif dataclasses.is_dataclass(batch):  # one with slots
        for item in dataclasses.fields(batch):
            yield from tensors_in(getattr(batch, item.name, None), depth + 1)


def sample_count(batch: Any) -> float:
    """The batch dimension: length of the first tensor that has one; NaN if there is none, or it cannot be read."""
    try:
        return _sample_count(batch)
    except Exception:  # what a batch is made of is the user's own, and so may be what reads its attributes
        return _NAN


def _sample_count(batch: Any) -> float:
    if isinstance(batch, torch.Tensor):
        return float(batch.size(0)) if batch.dim() else 1.0  # a nested tensor has no shape as a whole
    if not isinstance(batch, (Mapping, list, tuple)):
        for name in _COUNTS:
            count = getattr(batch, name, None)
            if isinstance(count, int):
                return float(count)
    for tensor in tensors_in(batch):
        if tensor.dim():
            return float(tensor.size(0))
    return _NAN


def holds_several(batch: Any, items: int) -> bool:
    """Whether a batch of so many items of a data set has several samples of each, one after the other.

    It has if all its tensors are as long, by a whole multiple of the items. That could be time steps first or a row of
    tokens, too: so not all of them have the items in the second dimension, and one holds more than rows. Of a single
    item, which a collate function may hand on as it is (a volume of slices), only channels before those tell.
    """
    try:
        shapes = [tuple(tensor.shape) for tensor in tensors_in(batch) if not tensor.is_nested]
        if len({shape[:1] for shape in shapes}) != 1 or max(map(len, shapes)) < _SAMPLE_DIMS + (items == 1):
            return False
        times, left = divmod(shapes[0][0], items)
        time_first = items > 1 and all(shape[1] == items for shape in shapes if len(shape) > 1)
        return times > 1 and not left and not time_first
    except Exception:  # as in `sample_count`
        return False


def tensor_count(batch: Any) -> int:
    """Tensors in the batch."""
    return sum(1 for _ in tensors_in(batch))


def byte_count(batch: Any) -> float:
    """Bytes of all tensors in the batch, NaN if there is none."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors_in(batch)]
    return float(sum(sizes)) if sizes else _NAN
