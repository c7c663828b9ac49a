"""Single operations of an autograd graph, read by what torch keeps of them; what somebody packed is never unpacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from torch import Tensor

LEAF: Final = "AccumulateGrad"
MOST_RESULTS: Final = 8
"""Of a forward: loss and logits come first, caches last."""


def behind(results: Any, most: int) -> tuple[list[Any], bool]:
    """The operations behind a loss or a sequence of results, and whether these are all; some 2 us each.

    Each comes after those that made what it takes, unless there are more.

    Args:
        results: what a backward begins at.
        most: it ends there.
    """
    given = results if isinstance(results, (tuple, list)) else (results,)
    roots = [(one.grad_fn, 0) for one in given if isinstance(one, Tensor)]
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
    return [one for one in (*walked, *(node for node, _ in way)) if one is not None], not way


def name_of(node: Any) -> str:
    """Such as `MulBackward`, without the number of its overload.

    It is the type's: whose function is written in Python may have set any attribute, `name` and `variable` too.
    """
    return type(node).__name__.rstrip("0123456789")


def shape_of(node: Any, number: int = 0) -> tuple[int, ...]:
    """The shape of one of an operation's results, the first if not said otherwise.

    Empty where torch, whose private name this is, has none, or where it is no number: nested tensors.
    """
    try:
        shape = tuple(node._input_metadata[number].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()
    return shape if all(type(one) is int for one in shape) else ()


def dtype_of(node: Any) -> str:
    """Of its first result, such as `float32`; only where `shape_of` tells its shape."""
    return str(node._input_metadata[0].dtype).removeprefix("torch.")


def newest(results: Iterable[Tensor]) -> int | None:
    """Autograd's number of the newest operation that made one of the results; None where there is none to be read."""
    numbers = (_number(one.grad_fn) for one in islice(results, MOST_RESULTS))
    return max((one for one in numbers if one is not None), default=None)


def made_since(nodes: Iterable[Any], number: int | None) -> int | None:
    """How many of some operations are newer than the one of that number; None where they have no numbers."""
    if number is None:
        return None
    return sum((_number(one) or 0) > number for one in nodes if name_of(one) != LEAF)


def _number(node: Any) -> int | None:
    """Operations are numbered in the order in which a thread makes them (torch 2.1 and later)."""
    asked = getattr(node, "_sequence_nr", None)
    return int(asked()) if asked is not None else None
