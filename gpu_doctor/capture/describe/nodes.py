"""Reads single operations of an autograd graph, without unpacking saved tensors that were packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from torch import Tensor

LEAF: Final = "AccumulateGrad"
MOST_RESULTS: Final = 8
"""Most results of a forward that are read: loss and logits come first, caches last."""


def behind(results: Any, most: int) -> tuple[list[Any], bool]:
    """Returns the operations behind a loss or several results, and True if these are all; takes some 2 us each.

    If these are all, each operation comes after those that made its inputs.

    Args:
        results: tensors at which a backward begins.
        most: most operations to return.
    """
    given = results if isinstance(results, (tuple, list)) else (results,)
    roots = [(result.grad_fn, 0) for result in given if isinstance(result, Tensor)]
    walked: list[Any] = []
    way: list[tuple[Any, Iterator[tuple[Any, int]]]] = [(None, iter(roots))]
    seen = {None}
    while way and len(seen) <= most:
        node, edges = way[-1]
        for further, _ in edges:
            if further not in seen:
                seen.add(further)
                way.append((further, iter(further.next_functions)))
                break
        else:
            walked.append(node)
            way.pop()
    return [found for found in (*walked, *(node for node, _ in way)) if found is not None], not way


def name_of(node: Any) -> str:
    """Returns an operation's name, such as `MulBackward`, without the number of its overload.

    It is the type's name: a function written in Python may set any attribute, even `name` and `variable`.
    """
    return type(node).__name__.rstrip("0123456789")


def shape_of(node: Any, number: int = 0) -> tuple[int, ...]:
    """Returns the shape of one of an operation's results, by default the first.

    It is empty if torch lacks this private attribute, or if a size is no number, as in nested tensors.
    """
    try:
        shape = tuple(node._input_metadata[number].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()
    return shape if all(type(size) is int for size in shape) else ()


def dtype_of(node: Any) -> str:
    """Returns the dtype of an operation's first result, such as `float32`; only valid if `shape_of` is not empty."""
    return str(node._input_metadata[0].dtype).removeprefix("torch.")


def newest(results: Iterable[Tensor]) -> int | None:
    """Returns autograd's sequence number of the newest operation behind the results; None if none can be read."""
    numbers = (_number(result.grad_fn) for result in islice(results, MOST_RESULTS))
    return max((number for number in numbers if number is not None), default=None)


def made_since(nodes: Iterable[Any], number: int | None) -> int | None:
    """Returns how many of the operations are newer than the one with this number; None if `number` is None."""
    if number is None:
        return None
    return sum((_number(node) or 0) > number for node in nodes if name_of(node) != LEAF)


def _number(node: Any) -> int | None:
    """Returns an operation's sequence number, which counts a thread's operations in order (torch 2.1 and later)."""
    sequence_number = getattr(node, "_sequence_nr", None)
    return int(sequence_number()) if sequence_number is not None else None
