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
BY_HAND: Final = "by hand"
KERNELS: Final = {
    "ScaledDotProductFlashAttentionBackward": "flash",
    "ScaledDotProductCudnnAttentionBackward": "cudnn",
    "ScaledDotProductEfficientAttentionBackward": "efficient",
    "ScaledDotProductFlashAttentionForCpuBackward": "cpu",
    "SafeSoftmaxBackward": "math",
    "SoftmaxBackward": BY_HAND,
}
"""Operation -> the kernel of attention that it belongs to. SafeSoftmax is that of `scaled_dot_product_attention` by
separate operations (torch 2.5 and later; before, that way is not told from attention by hand)."""
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
    found, calls, weights = {}, Counter[AttentionCalls](), _weights(nodes)
    for node in nodes:
        if name_of(node) == LEAF:
            found[id(node.variable)] = node.variable
        kernel = KERNELS.get(name_of(node))
        call = _call(node, kernel) if kernel and (kernel != BY_HAND or node in weights) else None
        if call is not None:
            calls[call] += 1
    attention = tuple(replace(one, calls=number) for one, number in calls.most_common())
    packed = any(word in name_of(node) for node in nodes for word in PACKS)
    return BackwardGraph(tuple(found.values()), len(nodes), attention, packed, made_since(nodes, since))


def _call(node: Any, kernel: str) -> AttentionCalls | None:
    """One attention as its node tells it; None where the shape is not the usual (sample, head, token, size)."""
    shape = shape_of(node)
    if kernel == BY_HAND and len(shape) == 3:  # samples and heads in one dimension
        shape = shape[0], 1, *shape[1:]
    if len(shape) != 4:
        return None
    samples, heads, queries, last = shape
    if kernel in ("math", BY_HAND):  # of its softmax, the last dimension is the keys
        size = _head_size(node)
        if kernel == BY_HAND and size is None:
            return None
        return AttentionCalls(kernel, 0, samples, heads, queries, last, size, dtype_of(node))
    key = shape_of(*node.next_functions[1]) if len(node.next_functions) > 1 else ()
    keys = key[2] if len(key) == 4 else queries
    return AttentionCalls(kernel, 0, samples, heads, queries, keys, last, dtype_of(node))


def _weights(nodes: Iterable[Any]) -> set[Any]:
    """Softmaxes whose result is multiplied with values, dropout and the like between them."""
    return {
        one
        for node in nodes
        if name_of(node) in PRODUCTS
        for factor, _ in node.next_functions
        for one in _back(factor)
        if name_of(one) == "SoftmaxBackward"
    }


def _head_size(node: Any) -> int | None:
    """Of a softmax of a product: the inner dimension of that product; None where there is none near."""
    for one in _back(node):
        at = PRODUCTS.get(name_of(one))
        if at is not None:
            shape = shape_of(*one.next_functions[at])
            return shape[-1] if shape else None
    return None


def _back(node: Any) -> Iterator[Any]:
    """An operation and what its first input was made by, some steps back, as far as the last layer."""
    for _ in range(_DEEP):
        if node is None or name_of(node) in LAYERS:
            return
        yield node
        edges = node.next_functions
        node = edges[0][0] if edges else None
