"""Finds a loss over classes that is put together by hand, in the graph of the first backward.

Walked is from each softmax up to the loss: through operations as large as the softmax itself, to the one that picks or
adds up the classes. Nothing of a GPU is read. On a CPU some rows of the targets tell whether a row has one class.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from gpu_doctor.capture.describe.backward_graph import VIEWS
from gpu_doctor.recording.setup import LossByHand

SOFTMAXES: Final = {"SoftmaxBackward": "softmax", "LogSoftmaxBackward": "log_softmax"}
DENSE: Final = {
    "MulBackward": "mul",
    "LogBackward": "log",
    "AddBackward": "add",
    "SubBackward": "sub",
    "NegBackward": "neg",
    "DivBackward": "div",
    "ClampBackward": "clamp",
    "ClampMinBackward": "clamp",
    "ToCopyBackward": "to",
}
"""Operations that keep every class: each is written and read as a whole."""
PICKS: Final = {
    "NllLossBackward": "nll_loss",
    "NllLoss2DBackward": "nll_loss",
    "NllLossNdBackward": "nll_loss",
    "GatherBackward": "gather",
    "IndexBackward": "index",
    "DiagonalBackward": "diagonal",
}
"""Operations that take one class of a row, by its index."""
SUMS: Final = {"SumBackward": "sum", "MeanBackward": "mean"}
_BEHIND: Final = ("add", "clamp")
_ROWS: Final = 4
"""Of each of the last two dimensions beside the classes: 16 rows are looked at."""


def loss_by_hand(nodes: Collection[Any]) -> LossByHand | None:
    """The largest such loss among the nodes of a graph; None where there is none."""
    starts = [one for one in nodes if _name(one) in SOFTMAXES]
    if not starts:
        return None
    users: dict[Any, list[Any]] = defaultdict(list)
    for node in nodes:
        for further, _ in node.next_functions:
            if further is not None:
                users[further].append(node)
    found = [one for start in starts if (one := _from(start, users)) is not None]
    return max(found, key=lambda one: one.rows * one.classes, default=None)


def _name(node: Any) -> str:
    return type(node).__name__.rstrip("0123456789")


def _shape(node: Any) -> tuple[int, ...]:
    shape = tuple(node._input_metadata[0].shape)  # private to torch
    return shape if all(type(size) is int for size in shape) else ()


def _from(start: Any, users: Mapping[Any, list[Any]]) -> LossByHand | None:
    """What is done with one softmax; None where others than a loss over its classes need it or what is made of it."""
    shape = _shape(start)
    if len(shape) < 2:
        return None
    dimension = _dimension(start, len(shape))
    done, labels, node = [SOFTMAXES[_name(start)]], "", start
    while len(using := users.get(node, ())) == 1:
        node = using[0]
        name = _name(node)
        if name in PICKS or name in SUMS:
            done.append(PICKS.get(name) or SUMS[name])
            labels = "indices" if name in PICKS else labels
            if "log" not in done and _logged(node, users):
                done.append("log of what was picked")
            return _loss(start, done, labels, shape[dimension])
        if math.prod(_shape(node)) != math.prod(shape):
            return None
        if name.endswith(VIEWS):
            continue
        if name not in DENSE:
            return None
        if name == "MulBackward" and (target := _other(node)) is not False:
            if target is None or "mul" in done or tuple(target.shape) != _shape(node):
                return None
            done.append("mul")
            labels = _labels(target, dimension if tuple(target.shape) == shape else -1, shape[dimension])
        elif name != "MulBackward":
            done.append(DENSE[name])
    return None


def _loss(start: Any, done: list[str], labels: str, classes: int) -> LossByHand | None:
    """The chain as a fact, if it gives a cross entropy: a logarithm, and something that says the class."""
    dense = "mul" in done and ("log_softmax" in done or any(one.startswith("log") for one in done))
    picked = labels == "indices" and "log" in done  # without: torch's own, or as few passes as it
    if not (dense or picked) or math.prod(_shape(start)) == 0:
        return None
    dtype = str(start._input_metadata[0].dtype).removeprefix("torch.")
    return LossByHand(tuple(done), labels, math.prod(_shape(start)) // classes, classes, dtype)


def _dimension(start: Any, dimensions: int) -> int:
    """Which one the classes are; autograd has it unsigned, so -1 is the largest number there is."""
    told = int(getattr(start, "_saved_dim", -1))
    return told if 0 <= told < dimensions else dimensions - 1


def _logged(node: Any, users: Mapping[Any, list[Any]]) -> bool:
    """Whether the logarithm is taken of what was picked."""
    while len(using := users.get(node, ())) == 1:
        node = using[0]
        name = _name(node)
        if name == "LogBackward":
            return True
        if not name.endswith(VIEWS) and DENSE.get(name) not in _BEHIND:
            return False
    return False


def _other(node: Any) -> Any:
    """What a product multiplies by: a tensor, False for a plain number, None where it is not to be had.

    That is so where it learns too (an entropy), or where somebody packed what autograd saved.
    """
    edges = [one for one, _ in node.next_functions]
    if None not in edges:
        return None if len(edges) > 1 else False
    side = "self" if edges.index(None) == 0 else "other"
    raw = getattr(node, f"_raw_saved_{side}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        value = getattr(node, f"_saved_{side}")
    except RuntimeError:  # it was changed since: the user's backward will say so
        return None
    return value if isinstance(value, Tensor) and value.dim() else False


def _labels(target: Tensor, dimension: int, classes: int) -> str:
    """`one-hot`, `smoothed` (one class stands out, all others are alike), `soft`; empty where it was not looked."""
    if type(target) is not Tensor or target.device.type != "cpu" or target.shape[dimension] != classes:
        return ""
    with torch.no_grad():
        rows = target.detach().movedim(dimension, -1)
        for at in range(rows.dim() - 1):
            near = at >= rows.dim() - 3
            rows = rows.narrow(at, 0, min(rows.shape[at], _ROWS if near else 1))
        least = rows.amin(-1, keepdim=True)
        standing = (rows != least).sum(-1)
        if int(standing.max()) != 1 or int((rows != 0).sum(-1).max()) == 0:
            return "soft"
        return "smoothed" if bool(least.any()) else "one-hot"
