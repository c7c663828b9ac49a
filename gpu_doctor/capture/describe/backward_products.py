"""How much of a backward serves which parameters: the products with weights, read off the graph of a loss.

A backward makes two products with a layer's weight: the gradient of the weight, which serves the weight alone, and that
of the layer's input, which serves all that lies before the layer. Only shapes are read, as in `backward_graph`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor
from torch.nn import Parameter

from gpu_doctor.capture.describe.backward_graph import MOST_OPERATIONS
from gpu_doctor.capture.describe.nodes import LEAF, behind, is_view, name_of, shape_of

MATRIX: Final = ("AddmmBackward", "MmBackward", "LinearBackward", "MkldnnRnnLayerBackward", "CudnnRnnBackward")
BATCHED: Final = ("BmmBackward", "BaddbmmBackward")
CONVOLUTION: Final = "ConvolutionBackward"
COMPILED: Final = "CompiledFunctionBackward"
CAST: Final = "ToCopyBackward"
_DEEP: Final = 8


@dataclass
class Products:
    """Of one backward."""

    serving: Counter[int] = field(default_factory=Counter)
    """Multiplications by whom they serve: the bits of the parameters, or-ed."""
    leaves: dict[int, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    """What gets gradients, by its bit."""


def backward_products(results: Any, bit_of: Callable[[Tensor], int]) -> Products:
    """Counts them; some 5 us an operation. Nothing of a graph of more than MOST_OPERATIONS.

    Args:
        results: the loss, or several.
        bit_of: the bit of a leaf, a power of two.
    """
    nodes, whole = behind(results, MOST_OPERATIONS)
    masks: dict[Any, int] = {}
    found = Products()
    for node in nodes if whole else ():
        if name_of(node) == LEAF:
            masks[node] = bit_of(node.variable)
            found.leaves[masks[node]].append(node.variable)
            continue
        edges = [one for one, _ in node.next_functions if one is not None]
        masks[node] = functools.reduce(operator.or_, (masks[one] for one in edges), 0)
        _count(node, edges, masks, found.serving)
    return found


def _count(node: Any, edges: list[Any], masks: dict[Any, int], serving: Counter[int]) -> None:
    name = name_of(node)
    if name not in (*MATRIX, *BATCHED, CONVOLUTION, COMPILED):
        return
    weights = {one: weight for one in edges if (weight := _weight(one)) is not None}
    products = {one: weight.numel() * _positions(node, name, weight) for one, weight in weights.items()}
    for one, number in products.items():
        serving[masks[one]] += number
    others = (masks[one] for one in edges if one not in weights and _parameter(one) is None)
    before = functools.reduce(operator.or_, others, 0)
    if before:
        serving[before] += sum(products.values()) or _frozen(node, name)


def _parameter(node: Any) -> Parameter | None:
    """The parameter that an edge leads to by nothing but views and casts."""
    for _ in range(_DEEP):
        if name_of(node) == LEAF:
            return node.variable if isinstance(node.variable, Parameter) else None
        if not (is_view(node) or name_of(node) == CAST) or node.next_functions[0][0] is None:
            return None
        node = node.next_functions[0][0]
    return None


def _weight(node: Any) -> Parameter | None:
    leaf = _parameter(node)
    return leaf if leaf is not None and leaf.dim() > 1 else None


def _positions(node: Any, name: str, weight: Tensor) -> int:
    """How often each number of the weight is multiplied: rows of a matrix, pixels of all images."""
    shape = shape_of(node)
    if not shape:
        return 1
    if name == COMPILED:  # what is inside is not told
        return shape[0]
    if name in BATCHED:
        return shape[-2]
    if name != CONVOLUTION:
        return math.prod(shape[:-1])
    spatial = shape[2:]
    if getattr(node, "_saved_transposed", False):
        kernel = weight.shape[2:]
        told = (node._saved_padding, node._saved_output_padding, node._saved_dilation, node._saved_stride)
        spatial = tuple(
            (size + 2 * pad - dilation * (width - 1) - 1 - more) // stride + 1
            for size, width, pad, more, dilation, stride in zip(spatial, kernel, *told, strict=True)
        )
    return shape[0] * math.prod(spatial)


def _frozen(node: Any, name: str) -> int:
    """The product with a weight that gets no gradient: of a matrix, as wide as its input."""
    if name not in MATRIX:
        return 0
    shape = shape_of(node)
    inner = [shape_of(one, number) for one, number in node.next_functions if one is not None]
    return math.prod(shape) * inner[-1][-1] if inner and inner[-1] else 0
