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
MASKS: Final = ("attn_bias", "attn_mask")
DROPS: Final = ("MulBackward", "NativeDropoutBackward")
"""What dropout leaves right behind the softmax."""
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
    dropped: set[Any] = set()
    for node in nodes:
        if name_of(node) == LEAF:
            found[id(node.variable)] = node.variable
        if name_of(node) in DROPS:
            dropped.update(one for one, _ in node.next_functions if name_of(one) in KERNELS)
    for node in nodes:
        kernel = KERNELS.get(name_of(node))
        call = _call(node, kernel, node in dropped) if kernel else None
        if call is not None:
            calls[call] += 1
    attention = tuple(replace(one, calls=number) for one, number in calls.most_common())
    packed = any(word in name_of(node) for node in nodes for word in PACKS)
    return BackwardGraph(tuple(found.values()), len(nodes), attention, packed, made_since(nodes, since))


def _call(node: Any, kernel: str, dropped: bool) -> AttentionCalls | None:
    """One attention as its node tells it; None where the shape is not the usual (sample, head, token, size)."""
    shape = shape_of(node)
    if len(shape) != 4:
        return None
    samples, heads, queries, last = shape
    dtype = dtype_of(node)
    if kernel == "math":
        size, masked, learned = _by_products(node)
        return AttentionCalls(kernel, 0, samples, heads, queries, last, size, dtype, masked, False, dropped, learned)
    key = shape_of(*node.next_functions[1]) if len(node.next_functions) > 1 else ()
    keys = key[2] if len(key) == 4 else queries
    causal, drops = bool(getattr(node, "_saved_is_causal", False)), getattr(node, "_saved_dropout_p", 0.0)
    return AttentionCalls(
        *(kernel, 0, samples, heads, queries, keys, last, dtype, _masked(node), causal, bool(drops), False)
    )


def _masked(node: Any) -> bool | None:
    """Whether a mask was given; None where that is not to be seen without unpacking what somebody packed."""
    for name in MASKS:
        saved = getattr(node, f"_raw_saved_{name}", None)
        if saved is not None:
            if getattr(saved, "unpack_hook", saved) is not None:
                return None
            try:
                return getattr(node, f"_saved_{name}") is not None
            except RuntimeError:  # it was given, and changed since: the user's backward will say so
                return True
    return None


def _by_products(node: Any) -> tuple[int | None, bool, bool]:
    """Of a softmax between two products: the head size, whether a mask is added, whether it is learned."""
    masked = learned = False
    for _ in range(_DEEP):
        edges = node.next_functions
        node = edges[0][0] if edges else None
        if node is None:
            break
        if name_of(node).startswith("Add"):
            masked = True
            learned = len(node.next_functions) > 1 and node.next_functions[1][0] is not None
        elif name_of(node).startswith("Bmm"):
            shape = shape_of(*node.next_functions[0])
            return (shape[-1] if shape else None), masked, learned
    return None, masked, learned
