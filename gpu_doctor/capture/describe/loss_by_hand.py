"""Finds a loss over classes that is put together by hand, in the graph of the first backward.

Walked is from each softmax up to the loss: through operations as large as the softmax itself, to the one that picks or
adds up the classes. Nothing of a GPU is read. On a CPU some rows of the targets tell whether a row has one class.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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
    shape_of,
    users_of,
)
from gpu_doctor.recording.setup import LossByHand

SOFTMAXES: Final = {"SoftmaxBackward": "softmax", "LogSoftmaxBackward": "log_softmax"}
DENSE: Final = {
    "LogBackward": "log",
    "AddBackward": "add",
    "SubBackward": "sub",
    "NegBackward": "neg",
    "DivBackward": "div",
    "ClampBackward": "clamp",
    "ClampMinBackward": "clamp",
    "ToCopyBackward": "to",
    "CloneBackward": "clone",
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
WITHIN: Final = ("add", "clamp", "to", "clone", "log")
"""What leaves the logarithm of a softmax what it is, but for a bound: that of a mixture is another one."""
SUMS: Final = {"SumBackward": "sum", "MeanBackward": "mean"}
_ROWS: Final = 4
"""Of each of the last two dimensions beside the classes: 16 rows are looked at."""


def loss_by_hand(nodes: Collection[Any]) -> LossByHand | None:
    """The largest such loss among the nodes of a graph; None where there is none.

    Some 1 us an operation where there is a softmax, and 0.4 ms for rows of 8000 classes (CPU seconds, torch 2.13).
    """
    starts = [one for one in nodes if name_of(one) in SOFTMAXES]
    if not starts:
        return None
    users = users_of(nodes)
    found = [one for start in starts if (one := _from(start, users)) is not None]
    return max(found, key=lambda one: one.rows * one.classes, default=None)


def _from(start: Any, users: Mapping[Any, list[Any]]) -> LossByHand | None:
    """What is done with one softmax; None where more than a loss over its classes needs it, or what is made of it."""
    shape = shape_of(start)
    if math.prod(shape) < 2:
        return None
    at = dimension(int(getattr(start, "_saved_dim", -1)), len(shape))
    classes = shape[at]
    done, labels, node = [SOFTMAXES[name_of(start)]], "", start
    while (node := only_user(node, users)) is not None:
        name = name_of(node)
        if name in PICKS or name in SUMS:
            done.append(PICKS.get(name) or SUMS[name])
            if "log" not in done and _logged(node, users):
                done.append("log of what was picked")
            one_of_a_row = name in PICKS and math.prod(shape_of(node)) * classes <= math.prod(shape)
            return _loss(start, done, "indices" if one_of_a_row else labels, classes)
        if math.prod(shape_of(node)) != math.prod(shape):
            return None
        if is_view(node):
            continue
        factor = factor_of(node) if name == "MulBackward" else None
        if factor is not None and factor.dim():
            if "mul" in done or tuple(factor.shape) != shape_of(node):
                return None
            done.append("mul")
            labels = _labels(factor, at if tuple(factor.shape) == shape else -1, classes)
        elif factor is not None and _logged_so_far(done):
            done.append("scale")
        elif _goes_on(node, name, done):
            done.append(DENSE[name])
        else:
            return None
    return None


def _logged_so_far(done: Sequence[str]) -> bool:
    return done[0] == "log_softmax" or "log" in done


def _goes_on(node: Any, name: str, done: Sequence[str]) -> bool:
    """Whether this operation only passes on what is above the softmax: nothing else in it learns."""
    if name not in DENSE or sum(one is not None for one, _ in node.next_functions) != 1:
        return False
    return _logged_so_far(done) or (DENSE[name] in WITHIN and "mul" not in done)


def _loss(start: Any, done: list[str], labels: str, classes: int) -> LossByHand | None:
    """The chain as a fact, if it gives a cross entropy: a logarithm, and something that says the class."""
    dense = "mul" in done and ("log_softmax" in done or any(one.startswith("log") for one in done))
    picked = labels == "indices" and "log" in done  # without: torch's own, or as few passes as it
    if not (dense or picked) or math.prod(shape_of(start)) == 0:
        return None
    return LossByHand(tuple(done), labels, math.prod(shape_of(start)) // classes, classes, dtype_of(start))


def _logged(node: Any, users: Mapping[Any, list[Any]]) -> bool:
    """Whether the logarithm is taken of what was picked."""
    while (node := only_user(node, users)) is not None:
        name = name_of(node)
        if name == "LogBackward":
            return True
        if not is_view(node) and DENSE.get(name) not in WITHIN:
            return False
    return False


def _labels(target: Tensor, axis: int, classes: int) -> str:
    """`one-hot`, `smoothed` (one class stands out, all others are alike), `soft`; empty where it was not looked."""
    if type(target) is not Tensor or target.device.type != "cpu" or target.shape[axis] != classes:
        return ""
    with torch.no_grad():
        rows = target.detach().movedim(axis, -1)
        for at in range(rows.dim() - 1):
            near = at >= rows.dim() - 3
            rows = rows.narrow(at, 0, min(rows.shape[at], _ROWS if near else 1))
        least = rows.amin(-1, keepdim=True)
        standing = (rows != least).sum(-1)
        if int(standing.max()) != 1 or int((rows != 0).sum(-1).max()) == 0:
            return "soft"
        if not bool(least.any()):  # weights of samples, too, make one number of a row another than 0; 0 masks a row
            return "one-hot" if bool(((rows == 0) | (rows == 1)).all()) else "soft"
        # Of two classes one always stands out: smoothing gives every row the same two numbers.
        alike = bool((least == least.flatten()[0]).all()) and bool((rows.amax(-1) == rows.amax()).all())
        return "smoothed" if alike and least.numel() > 1 else "soft"
