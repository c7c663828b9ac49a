"""Reads the graph of one loss: the tensors that get gradients, its operations, and how attention was computed.

This takes one walk, once a run. Only shape and dtype of a node's own results are read, never a saved tensor that was
packed: unpacking it would compute a checkpointed part again.
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
"""Most operations of a graph that are read, in some 20 ms."""
FUSED: Final = "ScaledDotProduct"
"""Prefix of the names of operations that compute attention in one kernel."""
SEPARATE: Final = {"SafeSoftmaxBackward": "math", "SoftmaxBackward": "by hand"}
"""Kind of attention by the name of a softmax between two products. `scaled_dot_product_attention` uses SafeSoftmax
(torch 2.5 and later; earlier versions look the same as attention written by hand)."""
PRODUCTS: Final = {"BmmBackward": 0, "BaddbmmBackward": 1}
"""Index of the first factor among the inputs of each product of batches of matrices."""
LAYERS: Final = ("MmBackward", "AddmmBackward")
"""Products with a layer's weight; they are outside of any attention."""
PACKS: Final = ("PackPadded", "Nested", "Jagged", "Varlen")
"""Parts of names of operations that take a batch without its padding."""
_DEEP: Final = 8


@dataclass(frozen=True)
class BackwardGraph:
    """Facts about the graph from a loss, or from other results, back to the leaves."""

    leaves: tuple[Tensor, ...] = ()
    """Tensors that will get gradients from the backward."""
    operations: int = 0
    """Number of operations, at most MOST_OPERATIONS."""
    attention: tuple[AttentionCalls, ...] = ()
    """Calls of attention by kind, the most frequent first."""
    packed: bool = False
    """True if an operation takes samples without their padding."""
    newer: int | None = None
    """Number of operations that are newer than a given one; None if unknown."""


def backward_graph(results: Any, since: int | None = None) -> BackwardGraph:
    """Reads the graph behind a loss or several results, up to MOST_OPERATIONS, at some 6 us an operation.

    Args:
        results: a loss, or several tensors.
        since: autograd's sequence number of the operation after which `newer` counts; None = unknown.
    """
    nodes, _ = behind(results, MOST_OPERATIONS)
    leaves = {id(node.variable): node.variable for node in nodes if name_of(node) == LEAF}
    packed = any(word in name_of(node) for node in nodes for word in PACKS)
    return BackwardGraph(tuple(leaves.values()), len(nodes), _attention(nodes), packed, made_since(nodes, since))


def _attention(nodes: Iterable[Any]) -> tuple[AttentionCalls, ...]:
    """Counts calls of fused kernels, and softmaxes between two products; returns the most frequent kind first."""
    calls = Counter[AttentionCalls]()
    softmaxes = set[Any]()
    for node in nodes:
        name = name_of(node)
        if name.startswith(FUSED) and len(shape := shape_of(node)) == 4:
            samples, heads, queries, size = shape
            calls[AttentionCalls("fused", 0, samples, heads, queries, queries, size, dtype_of(node))] += 1
        elif name in PRODUCTS:  # such as softmax times values, with dropout in between
            factors = (operation for factor, _ in node.next_functions for operation in _back(factor))
            softmaxes.update(operation for operation in factors if name_of(operation) in SEPARATE)
    calls.update(call for softmax in softmaxes if (call := _separate(softmax)) is not None)
    return tuple(replace(kind, calls=number) for kind, number in calls.most_common())


def _separate(softmax: Any) -> AttentionCalls | None:
    """Returns the attention that a softmax over a product belongs to; None without a product, or for an odd shape."""
    shape = shape_of(softmax)
    if len(shape) == 3:  # samples and heads in one dimension
        shape = shape[0], 1, *shape[1:]
    product = next((origin for origin in _back(softmax) if name_of(origin) in PRODUCTS), None)
    if product is None or len(shape) != 4:
        return None
    size = shape_of(*product.next_functions[PRODUCTS[name_of(product)]])[-1:]
    return AttentionCalls(SEPARATE[name_of(softmax)], 0, *shape, size[0] if size else None, dtype_of(softmax))


def _back(node: Any) -> Iterator[Any]:
    """Yields an operation and those behind its first input, some steps back, up to the last layer."""
    for _ in range(_DEEP):
        if node is None or name_of(node) in LAYERS:
            return
        yield node
        edges = node.next_functions
        node = edges[0][0] if edges else None
