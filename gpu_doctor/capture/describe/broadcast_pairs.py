"""Finds rows that are compared pair by pair in one large tensor, in the graph of a backward.

`(a[:, None] * b[None]).sum(-1)` makes rows x columns x size numbers to add them up at once; so do `F.cosine_similarity`
of two such views, and squares or norms of their difference. A dimension of the large tensor belongs to one side where
the other side is the same all along it, however that came about (`unsqueeze`, `expand`, `repeat`). Of shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from gpu_doctor.capture.describe.nodes import dimension, dtype_of, is_view, name_of, saved, shape_of, users_of
from gpu_doctor.recording.setup import PairsByBroadcast

FEWEST: Final = 1 << 16
"""Smaller tensors stay in a core's caches, and what counts then is how many operations there are."""
SUMS: Final = ("SumBackward", "MeanBackward")
NORMS: Final = ("LinalgVectorNormBackward", "NormBackward")
POINTWISE: Final = tuple(f"{name}Backward" for name in ("Mul", "Div", "Add", "Sub", "Neg", "Clone", "ToCopy", "Clamp"))
"""Their result is the same along a dimension if all that they take is; so is a norm that keeps its dimension."""
SPREADS: Final = ("ExpandBackward", "RepeatBackward")
_DEEP: Final = 8

Users = Mapping[Any, list[Any]]


def pairs_by_broadcast(nodes: Collection[Any]) -> PairsByBroadcast | None:
    """The largest among the nodes of a graph; None where there are none.

    Some 1 us an operation where a sum or a norm has a large tensor to add up (CPU seconds, torch 2.13).
    """
    starts = [one for one in nodes if name_of(one) in (*SUMS, *NORMS) and _added_up(one) >= FEWEST]
    if not starts:
        return None
    users = users_of(nodes)
    found = [one for start in starts if (one := _under(start, users)) is not None]
    largest = max(found, key=lambda one: one.numbers, default=None)
    return None if largest is None else replace(largest, calls=found.count(largest))


def _added_up(node: Any) -> int:
    """How many numbers a sum or norm takes."""
    return max((math.prod(shape_of(one)) for one, _ in node.next_functions if one is not None), default=0)


def _under(start: Any, users: Users) -> PairsByBroadcast | None:
    """What is added up, if it is a product of two sides or their difference squared, which nothing else takes."""
    node, kind = start.next_functions[0][0], "product"
    if name_of(start) in NORMS:
        if float(getattr(start, "_saved_ord", None) or getattr(start, "_saved_p", None) or 0.0) != 2.0:
            return None
        kind = "norm"
        if name_of(node) == "AddBackward" and _is_taken_once(node, users):  # what bounds F.pairwise_distance
            node = node.next_functions[0][0]
    elif (difference := _squared(node)) is not None and _is_taken_once(node, users):
        node, kind = difference, "squares"
    if node is None or name_of(node) != ("MulBackward" if kind == "product" else "SubBackward"):
        return None
    return _pairs(start, node, kind) if _is_taken_once(node, users) else None


def _is_taken_once(node: Any, users: Users) -> bool:
    return len(set(users.get(node, ()))) == 1


def _squared(node: Any) -> Any | None:
    """What a square is of; None where it is none."""
    if name_of(node) == "PowBackward":
        return node.next_functions[0][0] if float(node._saved_exponent) == 2.0 else None
    edges = [one for one, _ in node.next_functions]
    return edges[0] if name_of(node) == "MulBackward" and len(edges) == 2 and edges[0] is edges[1] else None


def _pairs(start: Any, node: Any, kind: str) -> PairsByBroadcast | None:
    """Whose each dimension of the large tensor is: the one side's, the other's, both's and added up, or both's."""
    shape = shape_of(node)
    summed = {dimension(int(one), len(shape)) for one in getattr(start, "_saved_dim", None) or ()}
    left, right = (_alike_along(_side(node, number), shape) for number in (0, 1))
    if left is None or right is None or left & right or summed & (left | right):
        return None
    rows, columns, size = (math.prod(shape[at] for at in one) for one in (right, left, summed))
    if min(rows, columns, size) < 2:
        return None
    sides = [one for one, _ in node.next_functions]
    if kind == "product" and all(_divided_by_its_norm(one, shape) for one in sides):
        kind = "cosine"
    learned = sum(one is not None for one in sides)
    samples = math.prod(shape) // (rows * columns * size)
    return PairsByBroadcast(kind, 1, samples, rows, columns, size, dtype_of(node), learned)


def _side(node: Any, number: int) -> Any:
    """One of the two that an operation takes: its operation, or itself where it gets no gradient and is kept."""
    side = node.next_functions[number][0] if number < len(node.next_functions) else None
    return saved(node, ("self", "other")[number]) if side is None else side


def _alike_along(side: Any, shape: tuple[int, ...], deep: int = _DEEP) -> set[int] | None:
    """Dimensions, of more than one number, of a large tensor along which one side is the same; None = not to be seen.

    Args:
        side: an operation or a tensor.
        shape: of the large tensor.
        deep: how many operations are looked through.
    """
    if side is None:
        return None
    if isinstance(side, Tensor):
        if side.layout is not torch.strided:
            return None
        own = tuple(size if step else 1 for size, step in zip(side.shape, side.stride(), strict=True))
        return _stretched(own, shape)
    alike, name = _stretched(shape_of(side), shape), name_of(side)
    if deep and name in SPREADS:
        alike |= _stretched(tuple(side._saved_self_sym_sizes), shape)
    if deep and (name in (*SPREADS, *POINTWISE) or (name in NORMS and side._saved_keepdim)):
        taken = [_alike_along(_side(side, at), shape, deep - 1) for at in range(len(side.next_functions))]
        alike |= set.intersection(*(one or set() for one in taken))
    return alike


def _stretched(own: tuple[int, ...], shape: tuple[int, ...]) -> set[int]:
    """Dimensions along which numbers of a shape are repeated where it is broadcast to another."""
    missing = len(shape) - len(own)
    return {at for at, size in enumerate(shape) if size > 1 and (at < missing or own[at - missing] == 1)}


def _divided_by_its_norm(side: Any, shape: tuple[int, ...]) -> bool:
    """Whether a side was divided by the lengths of its rows only once it was as large as the large tensor."""
    if side is None or name_of(side) != "DivBackward" or shape_of(side) != shape or len(side.next_functions) != 2:
        return False
    by = side.next_functions[1][0]
    for _ in range(_DEEP):
        if by is None or name_of(by) in NORMS:
            return by is not None and _added_up(by) == math.prod(shape)
        if name_of(by) not in POINTWISE and not is_view(by):
            return False
        by = by.next_functions[0][0]
    return False
