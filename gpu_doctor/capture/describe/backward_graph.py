"""What the graph of one loss tells: what it gives gradients to, its operations, and how attention was computed.

One walk, once a run. Only what a node says of the results of its own forward is read (shape and dtype), never a saved
tensor that somebody packed: unpacking one would compute a checkpointed part anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import Tensor

from gpu_doctor.capture.describe.nodes import LEAF, behind, dtype_of, made_since, name_of, shape_of
from gpu_doctor.recording.setup import AttentionCalls

MOST_OPERATIONS: Final = 20_000
"""A graph is looked through so far: some 20 ms."""
KERNELS: Final = {
    "ScaledDotProductFlashAttentionBackward": "flash",
    "ScaledDotProductCudnnAttentionBackward": "cudnn",
    "ScaledDotProductEfficientAttentionBackward": "efficient",
    "ScaledDotProductFlashAttentionForCpuBackward": "cpu",
    "SafeSoftmaxBackward": "math",
}
"""Operation -> the kernel of `scaled_dot_product_attention` that it belongs to. The last is the softmax of its way by
separate operations, and of nothing else (torch 2.5 and later; before, that way is not told from attention by hand)."""
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
    found, calls = {}, Counter[AttentionCalls]()
    for node in nodes:
        if name_of(node) == LEAF:
            found[id(node.variable)] = node.variable
        kernel = KERNELS.get(name_of(node))
        call = _call(node, kernel) if kernel else None
        if call is not None:
            calls[call] += 1
    attention = tuple(replace(one, calls=number) for one, number in calls.most_common())
    packed = any(word in name_of(node) for node in nodes for word in PACKS)
    return BackwardGraph(tuple(found.values()), len(nodes), attention, packed, made_since(nodes, since))


def _call(node: Any, kernel: str) -> AttentionCalls | None:
    """One attention as its node tells it; None where the shape is not the usual (sample, head, token, size)."""
    shape = shape_of(node)
    if len(shape) != 4:
        return None
    samples, heads, queries, last = shape
    if kernel == "math":  # of its softmax, the last dimension is the keys
        return AttentionCalls(kernel, 0, samples, heads, queries, last, _head_size(node), dtype_of(node))
    key = shape_of(*node.next_functions[1]) if len(node.next_functions) > 1 else ()
    keys = key[2] if len(key) == 4 else queries
    return AttentionCalls(kernel, 0, samples, heads, queries, keys, last, dtype_of(node))


def _head_size(node: Any) -> int | None:
    """Of a softmax between two products: the inner dimension of the first; None where it is not near."""
    for _ in range(_DEEP):
        edges = node.next_functions
        node = edges[0][0] if edges else None
        if node is None:
            return None
        if name_of(node).startswith("Bmm"):
            shape = shape_of(*node.next_functions[0])
            return shape[-1] if shape else None
    return None
