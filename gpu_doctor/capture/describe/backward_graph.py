"""What the graph of one loss tells: what it gives gradients to, its operations, and how attention was computed.

One walk, once a run. Only what a node says of the results of its own forward is read (shape and dtype), never a saved
tensor that somebody packed: unpacking one would compute a checkpointed part anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import Tensor

from gpu_doctor.capture.describe.nodes import LEAF, behind, dtype_of, made_since, name_of, shape_of
from gpu_doctor.recording.setup import AttentionCalls

MOST_OPERATIONS: Final = 20_000
"""A graph is looked through so far: some 20 ms."""
FUSED: Final = "ScaledDotProduct"
"""How the names begin of the operations that compute attention by one kernel."""
SEPARATE: Final = {"SafeSoftmaxBackward": "math", "SoftmaxBackward": "by hand"}
"""Softmax -> the attention that it belongs to where it stands between two products. SafeSoftmax is that of
`scaled_dot_product_attention` (torch 2.5 and later; before, that is not told from attention by hand)."""
PRODUCTS: Final = {"BmmBackward": 0, "BaddbmmBackward": 1}
"""Products of matrices for each sample and head -> which of their inputs is the first factor."""
LAYERS: Final = ("MmBackward", "AddmmBackward")
"""Products with a layer's weight: no attention reaches over one."""
PACKS: Final = ("PackPadded", "Nested", "Jagged", "Varlen")
"""Parts of names of operations that take a batch without its padding."""
_DEEP: Final = 8


@dataclass(frozen=True)
class BackwardGraph:
    """What was found on the way from a loss, or from other results, to the leaves."""

    leaves: tuple[Tensor, ...] = ()
    """The tensors that the backward will give gradients to."""
    operations: int = 0
    attention: tuple[AttentionCalls, ...] = ()
    packed: bool = False
    """One of them takes samples without their padding."""
    newer: int | None = None
    """How many of the operations were made after a given one; None where it is not known."""


def backward_graph(results: Any, since: int | None = None) -> BackwardGraph:
    """The graph behind a loss or a sequence of results; some 6 us an operation, ends at MOST_OPERATIONS.

    Args:
        results: a loss, or several tensors.
        since: autograd's number of the operation after which `newer` counts.
    """
    nodes, _ = behind(results, MOST_OPERATIONS)
    leaves = {id(node.variable): node.variable for node in nodes if name_of(node) == LEAF}
    packed = any(word in name_of(node) for node in nodes for word in PACKS)
    return BackwardGraph(tuple(leaves.values()), len(nodes), _attention(nodes), packed, made_since(nodes, since))


def _attention(nodes: Iterable[Any]) -> tuple[AttentionCalls, ...]:
    """Calls of fused kernels, and softmaxes between two products, the most frequent kind first."""
    calls = Counter[AttentionCalls]()
    softmaxes = set[Any]()
    for node in nodes:
        name = name_of(node)
        if name.startswith(FUSED) and len(shape := shape_of(node)) == 4:
            samples, heads, queries, size = shape
            calls[AttentionCalls("fused", 0, samples, heads, queries, queries, size, dtype_of(node))] += 1
        elif name in PRODUCTS:  # of the softmax with the values; dropout and the like may lie between them
            factors = (one for factor, _ in node.next_functions for one in _back(factor))
            softmaxes.update(one for one in factors if name_of(one) in SEPARATE)
    calls.update(call for one in softmaxes if (call := _separate(one)) is not None)
    return tuple(replace(one, calls=number) for one, number in calls.most_common())


def _separate(softmax: Any) -> AttentionCalls | None:
    """The attention of a softmax over a product; None where none is near, or its shape is not the usual one."""
    shape = shape_of(softmax)
    if len(shape) == 3:  # samples and heads in one dimension
        shape = shape[0], 1, *shape[1:]
    product = next((one for one in _back(softmax) if name_of(one) in PRODUCTS), None)
    if product is None or len(shape) != 4:
        return None
    size = shape_of(*product.next_functions[PRODUCTS[name_of(product)]])[-1:]
    return AttentionCalls(SEPARATE[name_of(softmax)], 0, *shape, size[0] if size else None, dtype_of(softmax))


def _back(node: Any) -> Iterator[Any]:
    """An operation and what its first input was made by, some steps back, as far as the last layer."""
    for _ in range(_DEEP):
        if node is None or name_of(node) in LAYERS:
            return
        yield node
        edges = node.next_functions
        node = edges[0][0] if edges else None
