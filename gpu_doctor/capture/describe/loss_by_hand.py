"""Finds a loss over classes that is put together by hand, in the graph of the first backward.

Walked is from each softmax up to the loss: through operations as large as the softmax itself, to the one that picks or
adds up the classes. Nothing of a GPU is read. On a CPU some rows of the targets tell whether a row has one class.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from gpu_doctor.capture.describe.backward_graph import VIEWS
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
    """Of its first result; empty where that is not told: it is private to torch."""
    try:
        shape = tuple(node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()
    return shape if all(type(size) is int for size in shape) else ()


def _from(start: Any, users: Mapping[Any, list[Any]]) -> LossByHand | None:
    """What is done with one softmax; None where more than a loss over its classes needs it, or what is made of it."""
    shape = _shape(start)
    if math.prod(shape) < 2:
        return None
    dimension = _dimension(start, len(shape))
    classes = shape[dimension]
    done, labels, node = [SOFTMAXES[_name(start)]], "", start
    while len(using := users.get(node, [])) == 1:
        node = using[0]
        name = _name(node)
        if name in PICKS or name in SUMS:
            done.append(PICKS.get(name) or SUMS[name])
            if "log" not in done and _logged(node, users):
                done.append("log of what was picked")
            one_of_a_row = name in PICKS and math.prod(_shape(node)) * classes <= math.prod(shape)
            return _loss(start, done, "indices" if one_of_a_row else labels, classes)
        if math.prod(_shape(node)) != math.prod(shape):
            return None
        if name.endswith(VIEWS):
            continue
        factor = _factor(node) if name == "MulBackward" else None
        if factor is not None and factor.dim():
            if "mul" in done or tuple(factor.shape) != _shape(node):
                return None
            done.append("mul")
            labels = _labels(factor, dimension if tuple(factor.shape) == shape else -1, classes)
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
    if not (dense or picked) or math.prod(_shape(start)) == 0:
        return None
    dtype = str(start._input_metadata[0].dtype).removeprefix("torch.")
    return LossByHand(tuple(done), labels, math.prod(_shape(start)) // classes, classes, dtype)


def _dimension(start: Any, dimensions: int) -> int:
    """Which one the classes are; autograd has it unsigned, so -1 is the largest number."""
    told = int(getattr(start, "_saved_dim", -1))
    return (told - (1 << 64) if told >> 63 else told) % dimensions


def _logged(node: Any, users: Mapping[Any, list[Any]]) -> bool:
    """Whether the logarithm is taken of what was picked."""
    while len(using := users.get(node, [])) == 1:
        node = using[0]
        name = _name(node)
        if name == "LogBackward":
            return True
        if not name.endswith(VIEWS) and DENSE.get(name) not in WITHIN:
            return False
    return False


def _factor(node: Any) -> Tensor | None:
    """What a product multiplies by, of no dimension if a number.

    None where it learns too (an entropy), or where somebody packed what autograd saved.
    """
    edges = [one for one, _ in node.next_functions]
    if None not in edges:
        return None if len(edges) > 1 else torch.ones(())
    side = "self" if edges[0] is None else "other"
    raw = getattr(node, f"_raw_saved_{side}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        value = getattr(node, f"_saved_{side}")
    except RuntimeError:  # it was changed since: the user's backward will say so
        return None
    return value if isinstance(value, Tensor) else None


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
        if not bool(least.any()):  # weights of samples, too, make one number of a row another than 0; 0 masks a row
            return "one-hot" if bool(((rows == 0) | (rows == 1)).all()) else "soft"
        # Of two classes one always stands out: smoothing gives every row the same two numbers.
        alike = bool((least == least.flatten()[0]).all()) and bool((rows.amax(-1) == rows.amax()).all())
        return "smoothed" if alike and least.numel() > 1 else "soft"
