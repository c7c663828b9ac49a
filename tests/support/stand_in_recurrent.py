"""Recurrent layers on a stand-in GPU: one operation each way, as cudnn has them, computed by torch's CPU layers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.support.stand_in_tensor import Gpu, OnCard, Work

_LAYERS: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_CELLS: Final = tuple(f"{name}_cell" for name in _LAYERS)


def recurrent(gpu: Gpu) -> None:
    """Puts stand-ins for the layers' functions where `torch.nn` calls them."""
    rnn: Any = sys.modules["torch.nn.modules.rnn"]

    functions = type("Functions", (), {"__getattr__": lambda self, name: getattr(torch._VF, name)})()
    for name in (*_LAYERS, *_CELLS):
        setattr(functions, name, _on_card(gpu, getattr(torch._VF, name)))
    rnn._VF = functions


def _on_card(gpu: Gpu, layer: Callable[..., Any]) -> Callable[..., Any]:
    function: Any = torch.autograd.Function

    class Whole(function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, spec: Any, *flat: Any) -> Any:
            def compute() -> tuple[Work, Any]:
                inner = [_leaf(one) for one in flat]
                with torch.enable_grad():
                    out = layer(*tree_unflatten(inner, spec))
                out = tuple(out) if isinstance(out, (tuple, list)) else (out,)
                ctx.inner, ctx.out, ctx.ns = inner, out, _ns(gpu, flat)
                return Work(ctx.ns, False), tuple(gpu.wrap(one.detach()) for one in out)

            return gpu.computed(compute)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            def compute() -> tuple[Work, Any]:
                pairs = [(out, grad.inner) for out, grad in zip(ctx.out, grads, strict=True) if grad is not None]
                wanted = [one for one in ctx.inner if isinstance(one, torch.Tensor) and one.requires_grad]
                outs, given = [one for one, _ in pairs], [grad for _, grad in pairs]
                found = iter(torch.autograd.grad(outs, wanted, given, allow_unused=True))
                made = [next(found) if _differentiable(one) else None for one in ctx.inner]
                return Work(2 * ctx.ns, False), [None if one is None else gpu.wrap(one) for one in made]

            return (None, *gpu.computed(compute))

    def call(*args: Any) -> Any:
        flat, spec = tree_flatten(args)
        if not any(isinstance(one, OnCard) for one in flat):
            return layer(*args)
        out = Whole.apply(spec, *flat)
        return out if len(out) > 1 else out[0]

    return call


def _leaf(value: Any) -> Any:
    if not isinstance(value, OnCard):
        return value
    leaf = value.inner.detach()
    return leaf.requires_grad_() if value.requires_grad else leaf


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _ns(gpu: Gpu, flat: tuple[Any, ...]) -> int:
    """Every weight meets every position of the batch; the positions of a sequence come one after another."""
    tensors = [one for one in flat if isinstance(one, OnCard)]
    inputs, weights = tensors[0], [one for one in tensors if one.dim() == 2 and one.requires_grad]
    positions = inputs.numel() // max(inputs.size(-1), 1)
    flops = 2 * positions * sum(one.numel() for one in weights)
    in_turn = max(inputs.shape[:2]) if inputs.dim() == 3 else 1
    return int(max(round(flops / gpu.card.fp32_flops * 1e9), in_turn * gpu.card.shortest_ns))
