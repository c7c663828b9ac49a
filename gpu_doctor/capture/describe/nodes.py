"""Single operations of an autograd graph, read by what torch keeps of them; what somebody packed is never unpacked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor


def behind(results: Any, most: int) -> tuple[list[Any], bool]:
    """The operations behind a loss or a sequence of results, and whether these are all; some 1 us each.

    Args:
        results: what a backward begins at.
        most: it ends there.
    """
    given = results if isinstance(results, (tuple, list)) else (results,)
    ways = list(dict.fromkeys(one.grad_fn for one in given if isinstance(one, Tensor) and one.grad_fn is not None))
    seen, walked = set(ways), []
    while ways and len(seen) < most:
        node = ways.pop()
        walked.append(node)
        for further, _ in node.next_functions:
            if further is not None and further not in seen:
                seen.add(further)
                ways.append(further)
    return [*walked, *ways], not ways


def name_of(node: Any) -> str:
    """Such as `MulBackward`, without the number of its overload."""
    return type(node).__name__.rstrip("0123456789")


def shape_of(node: Any) -> tuple[int, ...]:
    """Of its first result; empty where that is not told: it is private to torch."""
    try:
        shape = tuple(node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()
    return shape if all(type(size) is int for size in shape) else ()


def dtype_of(node: Any) -> str:
    """Of its first result, such as `float32`; only where `shape_of` tells its shape."""
    return str(node._input_metadata[0].dtype).removeprefix("torch.")


def users_of(nodes: Collection[Any]) -> dict[Any, list[Any]]:
    """By operation, those that take its result; twice, if they take it twice."""
    users: dict[Any, list[Any]] = defaultdict(list)
    for node in nodes:
        for further, _ in node.next_functions:
            if further is not None:
                users[further].append(node)
    return users


def dimension(told: int, dimensions: int) -> int:
    """Which one is meant; autograd tells it unsigned, so -1 is the largest number."""
    return (told - (1 << 64) if told >> 63 else told) % dimensions


def saved(node: Any, name: str) -> Tensor | None:
    """A tensor that an operation keeps for its backward; None where it keeps none, or somebody packed it."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        value = getattr(node, f"_saved_{name}")
    except RuntimeError:  # it was changed since: the user's backward will say so
        return None
    return value if isinstance(value, Tensor) else None


def factor_of(node: Any) -> Tensor | None:
    """What a product multiplies by, of no dimension if a number; None where it learns too (an entropy)."""
    edges = [one for one, _ in node.next_functions]
    if None not in edges:
        return None if len(edges) > 1 else torch.ones(())
    return saved(node, "self" if edges[0] is None else "other")
