"""Counts samples and bytes of a batch in any container."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch

_DEEPEST: Final = 4
_NAN: Final = float("nan")
_SAMPLE_DIMS: Final = 3
"""Fewest dimensions of a batch of crops: samples, and two of each crop (channels and length, height and width)."""
_COUNTS: Final = ("num_graphs", "batch_size")
"""Attributes that hold the size of batch objects in graph and text libraries."""


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Yields every tensor in nested mappings, sequences, dataclasses and plain objects, in order."""
    return (tensor for _, tensor in named_tensors(batch))


def named_tensors(
    value: Any, name: str = "batch", depth: int = _DEEPEST, objects: bool = True
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every tensor as `tensors_in` does, with its name: a key, an attribute, or a place such as `batch[0]`.

    Args:
        value: the nested containers.
        name: name of `value`.
        depth: number of levels to search.
        objects: True to search plain objects, too.
    """
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth > 0 and not isinstance(value, (str, bytes, int, float, complex, type(None))):
        for inner, member in _members(value, name, objects):
            yield from named_tensors(member, str(inner), depth - 1, objects)


def _members(value: Any, name: str, objects: bool) -> Iterable[tuple[Any, Any]]:
    """Returns name and value of each member of a container or object."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None) or (f"{name}[{at}]" for at in itertools.count())
        named: Iterable[tuple[Any, Any]] = zip(names, value, strict=False)
        return named
    if objects and hasattr(value, "__dict__"):
        attributes: dict[str, Any] = vars(value)
        return attributes.items()
    if dataclasses.is_dataclass(value):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return ()


def sample_count(batch: Any) -> float:
    """Returns the batch dimension: the length of the first tensor with a dimension; NaN if it cannot be read."""
    try:
        return _sample_count(batch)
    except Exception:  # a batch may be of the user's own classes, and reading their attributes may run the user's code
        return _NAN


def _sample_count(batch: Any) -> float:
    """Returns the same as `sample_count`, but may raise."""
    # Called in every step, for a model's arguments or batches that no sampler counts; walking nested containers takes
    # 10 us, so simple cases come first.
    first = None
    if isinstance(batch, (list, tuple)):
        first = batch[0] if batch else None
    elif type(batch) is dict:
        first = next(iter(batch.values()), None)
    if isinstance(first, torch.Tensor) and first.dim():
        return float(first.size(0))
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
    """True if a batch has several samples of each item of the dataset, one after the other.

    All tensors must then have the same length, a whole multiple of `items`. As time steps in the first dimension, or a
    row of tokens, look the same, two more conditions hold: not all tensors have the items in the second dimension, and
    one tensor has more dimensions than rows of numbers. A single item, which a collate function may pass on unchanged
    (a volume of slices), needs another dimension, for channels.

    Args:
        batch: the batch.
        items: number of the dataset's items in it.
    """
    try:
        shapes = [tuple(tensor.shape) for tensor in tensors_in(batch) if not tensor.is_nested]
        if len({shape[:1] for shape in shapes}) != 1 or max(map(len, shapes)) < _SAMPLE_DIMS + (items == 1):
            return False
        times, remainder = divmod(shapes[0][0], items)
        time_first = items > 1 and all(shape[1] == items for shape in shapes if len(shape) > 1)
        return times > 1 and not remainder and not time_first
    except Exception:  # as in `sample_count`
        return False


def tensor_count(batch: Any) -> int:
    """Returns the number of tensors in the batch."""
    return sum(1 for _ in tensors_in(batch))


def byte_count(batch: Any) -> float:
    """Returns the bytes of all tensors in the batch; NaN if there is none."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors_in(batch)]
    return float(sum(sizes)) if sizes else _NAN
