"""How many samples a batch holds and how many bytes, whatever container it comes in."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch

_DEEPEST: Final = 4
_NAN: Final = float("nan")
_SAMPLE_DIMS: Final = 3
"""Dimensions of a batch of crops, at least: samples, and two of their own (channels and length, height and width)."""
_COUNTS: Final = ("num_graphs", "batch_size")
"""Attributes by which batch objects of graph and text libraries tell their size."""


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a nest of mappings, sequences, dataclasses and plain objects, in their order."""
    return (tensor for _, tensor in named_tensors(batch))


def named_tensors(
    value: Any, name: str = "batch", depth: int = _DEEPEST, objects: bool = True
) -> Iterator[tuple[str, torch.Tensor]]:
    """As `tensors_in`, each with its name: a key, an attribute, or a place such as `batch[0]`.

    Args:
        value: the nest.
        name: what it is called.
        depth: levels of it that are looked into.
        objects: whether plain objects are, too.
    """
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth > 0 and not isinstance(value, (str, bytes, int, float, complex, type(None))):
        for inner, one in _members(value, name, objects):
            yield from named_tensors(one, str(inner), depth - 1, objects)


def _members(value: Any, name: str, objects: bool) -> Iterable[tuple[Any, Any]]:
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
        return ((one.name, getattr(value, one.name, None)) for one in dataclasses.fields(value))
    return ()


def sample_count(batch: Any) -> float:
    """The batch dimension: length of the first tensor that has one; NaN if there is none, or it cannot be read."""
    try:
        return _sample_count(batch)
    except Exception:  # what a batch is made of is the user's own, and so may be what reads its attributes
        return _NAN


def _sample_count(batch: Any) -> float:
    # Asked in every step, of a model's arguments or of batches that no sampler counts: to walk a nest takes 10 us.
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
