"""Finds layers over classes that compute at positions which the loss leaves out, in the graph of a backward.

Walked is from each matrix product up to the softmax of a loss, and from there to what makes one number of the losses
of all positions. What is picked on the way is told by shapes; what is ignored or multiplied by 0, by the targets and
masks that the operations keep: these are counted where they lie, and nothing waits for a device.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from gpu_doctor.capture.describe.nodes import (
    dimension,
    dtype_of,
    factor_of,
    is_view,
    name_of,
    only_user,
    saved,
    shape_of,
    users_of,
)

BIASED: Final = "AddmmBackward"
LAYERS: Final = (BIASED, "MmBackward")
SOFTMAX: Final = "LogSoftmaxBackward"
ROW_BY_ROW: Final = tuple(
    f"{name}Backward"
    for name in ("Add", "Sub", "Mul", "Div", "Neg", "ToCopy", "Clone", "Tanh", "Clamp", "MaskedFill", "Where")
)
"""What gives each position a result of its own, whatever becomes of the others."""
PICKS: Final = ("IndexBackward", "IndexSelectBackward", "MaskedSelectBackward", "GatherBackward")
FUSED: Final = ("NllLossBackward", "NllLoss2DBackward")
SUMS: Final = ("SumBackward", "MeanBackward")
"""Over the classes, beside the loss: label smoothing."""
_UNREDUCED: Final = 0
"""What `reduction="none"` is called in the graph."""


@dataclass(frozen=True)
class Limit:
    """What leaves positions out, and how many it leaves."""

    told_by: str
    left: int | Tensor
    """A tensor of one number where it lies on a device: reading it would wait."""


@dataclass(frozen=True)
class Layer:
    """One layer whose results go to a loss over its classes and nowhere else, in one backward."""

    rows: int
    classes: int
    width: int
    dtype: str
    sides: int
    bias: bool
    behind: int
    """Positions of a sample that lie behind the classes where the softmax is taken."""
    limits: tuple[Limit, ...]
    """What leaves positions out; none where the loss reads all."""


def layers_of_losses(nodes: Collection[Any]) -> list[Layer]:
    """All of a graph, which must be whole; some 1 us an operation where there is such a loss.

    Args:
        nodes: every operation, see `nodes.behind`.
    """
    if not any(name_of(one) == SOFTMAX for one in nodes):
        return []
    users = users_of(nodes)
    return [found for one in nodes if name_of(one) in LAYERS and (found := _from(one, users)) is not None]


def _from(layer: Any, users: Mapping[Any, list[Any]]) -> Layer | None:
    """What becomes of one layer's results; None where that is no loss over its classes."""
    shape = shape_of(layer)
    sizes: Sequence[int] = getattr(layer, "_saved_mat2_sym_sizes", ())
    if len(shape) != 2 or len(sizes) != 2 or min(shape) < 2:
        return None
    rows, classes = shape
    node = only_user(layer, users)
    while node is not None and name_of(node) != SOFTMAX:
        node = only_user(node, users) if _row_by_row(node) else None
    if node is None or not (inside := shape_of(node)):
        return None
    at = dimension(int(node._saved_dim), len(inside))
    if inside[at] != classes:
        return None
    limits = (*_picked("picked logits", math.prod(inside) // classes, rows), *_of_the_loss(node, users, rows, classes))
    sides = sum(one is not None for one, _ in layer.next_functions[-2:])
    bias, behind = name_of(layer) == BIASED, math.prod(inside[at + 1 :])
    return Layer(rows, classes, int(sizes[0]), dtype_of(layer), sides, bias, behind, limits)


def _row_by_row(node: Any) -> bool:
    name = name_of(node)
    return name in ROW_BY_ROW or name in PICKS or is_view(node)


def _picked(told_by: str, left: int, rows: int) -> tuple[Limit, ...]:
    return (Limit(told_by, left),) if left < rows else ()


def _of_the_loss(softmax: Any, users: Mapping[Any, list[Any]], rows: int, classes: int) -> Iterator[Limit]:
    """What leaves positions out behind the softmax."""
    using = users.get(softmax, [])
    losses = [one for one in using if len(using) == 1 or name_of(one) not in SUMS]
    node = losses[0] if len(losses) == 1 else None
    while node is not None and is_view(node):
        yield from _picked("index", math.prod(shape_of(node)) // classes, rows)
        node = only_user(node, users)
    if node is None:
        return
    if name_of(node) in FUSED:
        target = saved(node, "target")
        if target is not None:
            yield from _counted("ignore_index", target != int(node._saved_ignore_index), target.numel())
        if int(node._saved_reduction) != _UNREDUCED:
            return
    elif name_of(node) not in PICKS or math.prod(shape_of(node)) > rows:
        return
    yield from _picked("index", math.prod(shape_of(node)), rows)
    before, node = node, only_user(node, users)
    while node is not None and _row_by_row(node):
        left = math.prod(shape_of(node))
        yield from _picked("index", left, rows)
        mask = _mask(node, before)
        if mask is not None:
            yield from _counted("mask", mask, left)
        before, node = node, only_user(node, users)


def _mask(node: Any, before: Any) -> Tensor | None:
    """Where an operation lets the result before it through; None where it has no mask."""
    name = name_of(node)
    if name == "MulBackward":
        factor = factor_of(node)
        return factor != 0 if factor is not None and factor.dim() else None
    if name == "MaskedFillBackward":
        mask = saved(node, "mask")
        return None if mask is None else mask.logical_not()
    if name == "WhereBackward":
        condition = saved(node, "condition")
        chosen = node.next_functions[0][0] is before
        return condition if condition is None or chosen else condition.logical_not()
    return None


def _counted(told_by: str, mask: Tensor, numbers: int) -> Iterator[Limit]:
    """The positions that a mask lets through, of so many that it is spread over, if it is not known to be all."""
    if type(mask) is not Tensor or not mask.numel():
        return
    if mask.is_cuda and torch.cuda.is_current_stream_capturing():  # our count would go into the user's graph
        return
    with torch.no_grad():
        left = torch.count_nonzero(mask) * (numbers // mask.numel())
    if not left.is_cpu or int(left) < numbers:
        yield Limit(told_by, int(left) if left.is_cpu else left)
