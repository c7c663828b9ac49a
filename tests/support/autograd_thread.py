"""Backward passes on a thread of autograd's own, without a GPU: where passes lie deep in each other, torch makes one.

On a CUDA device every backward pass runs on such a thread, and so do the hooks of its parameters. On a CPU the thread
that calls does the work itself, until sixty passes lie within each other (torch's `MAX_DEPTH`): then one of autograd's
goes on while the caller waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable

DEEP = 61


def _run(tensor: torch.Tensor) -> None:
    """The engine's own call, not `Tensor.backward`: nobody hears that one pass lies in another."""
    engine: Any = Variable._execution_engine
    engine.run_backward(
        (tensor,), (torch.ones_like(tensor),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


class _Floor(torch.autograd.Function):
    """Its backward runs that of the floor below, the lowest that of the loss."""

    @staticmethod
    def forward(ctx: Any, door: torch.Tensor, losses: list[torch.Tensor], floor: int) -> torch.Tensor:
        ctx.losses, ctx.floor = losses, floor
        return losses[0].detach().clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        with torch.enable_grad():
            _run(_on(ctx.losses, ctx.floor - 1) if ctx.floor else ctx.losses[0])
        return torch.zeros(()), None, None


def _on(losses: list[torch.Tensor], floor: int) -> torch.Tensor:
    apply: Any = _Floor.apply
    found: torch.Tensor = apply(torch.zeros((), requires_grad=True), losses, floor)
    return found


def elsewhere(loss_of: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The loss, whose `backward` will run that of `loss_of()` on a thread of autograd's while the caller waits."""
    with torch.enable_grad():
        return _on([loss_of()], DEEP)
