"""Gradient scaling for fp16 from outside the user's code: what torch.amp.GradScaler does, with no line to change.

The loss is scaled as it goes into backward, and the gradients are scaled back as soon as backward returns. So whatever
the user's code does with gradients before the step (clipping in any of its spellings, norms, logging, accumulation)
sees true gradients. The scale is a power of two, so scaling and scaling back lose nothing. Constants and policy are
those of torch.amp.GradScaler: a step whose gradients are not finite changes nothing and halves the scale; 2000 good
steps in a row double it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import Refused

INITIAL_SCALE: Final = 65536.0
GROWTH: Final = 2.0
BACKOFF: Final = 0.5
GROWTH_INTERVAL: Final = 2000


class LossScaling:
    """The scale and its policy for one optimizer."""

    def __init__(self) -> None:
        self.scale = INITIAL_SCALE
        self.skipped = 0
        """Steps that changed nothing because a gradient was not finite."""
        self._good = 0
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepping: weakref.ref[Optimizer] | None = None
        self._bad: torch.Tensor | None = None
        self._inside = False
        self._set_aside: list[tuple[torch.Tensor, torch.Tensor]] = []

    def meet(self, optimizer: Optimizer) -> None:
        """Scales for this optimizer's parameters from the next backward on."""
        self._optimizers.add(optimizer)

    def _gradients(self) -> list[torch.Tensor]:
        parameters = {
            id(p): p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]
        }
        return [p.grad for p in parameters.values() if p.grad is not None]

    def wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward` with the loss scaled and the gradients scaled back."""

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not self._optimizers:  # inside: a checkpoint's backward within ours
                return original(tensors, *args, **kwargs)
            if kwargs.get("create_graph") or (len(args) > 2 and args[2]):
                raise Refused("backward(create_graph=True) cannot be scaled from outside: try bf16.")
            several = isinstance(tensors, (tuple, list))
            scaled = [one.float() * self.scale for one in (tensors if several else [tensors])]
            _multiply(self._gradients(), self.scale)  # what earlier backwards of this step have accumulated
            self._inside = True
            try:
                return original(scaled, *args, **kwargs)
            finally:
                self._inside = False
                gradients = self._gradients()
                _multiply(gradients, 1.0 / self.scale)
                self._watch(gradients)

        return backward

    @torch.no_grad()
    def _watch(self, gradients: list[torch.Tensor]) -> None:
        """Remembers on the device, without waiting for it, whether a gradient is not finite.

        At once, since clipping by value would turn an infinity into an ordinary number.
        """
        if gradients:
            worst = torch.stack([one.abs().max().float().to(gradients[0].device) for one in gradients if one.numel()])
            bad = ~torch.isfinite(worst).all()
            self._bad = bad if self._bad is None else self._bad | bad

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Takes the gradients away for the step if one of them is not finite.

        Raises:
            Refused: with a closure, or if a second optimizer steps.
        """
        if optimizer not in self._optimizers:
            return
        if kwargs.get("closure") is not None or any(callable(one) for one in args[1:]):
            raise Refused("The optimizer steps with a closure, which gradient scaling cannot follow: try bf16.")
        first = self._stepping() if self._stepping is not None else None
        if first is not None and first is not optimizer:
            raise Refused("More than one optimizer steps, and one loss scale cannot serve both: try bf16.")
        self._stepping = weakref.ref(optimizer)
        if self._bad is None or not bool(self._bad.item()):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._set_aside.append((parameter, parameter.grad))
                    parameter.grad = None

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Gives the gradients back and updates the scale."""
        if optimizer not in self._optimizers or self._bad is None:
            return
        if self._set_aside:
            for parameter, gradient in self._set_aside:
                parameter.grad = gradient
            self._set_aside = []
            self.scale *= BACKOFF
            self.skipped += 1
            self._good = 0
        else:
            self._good += 1
            if self._good >= GROWTH_INTERVAL:
                self.scale *= GROWTH
                self._good = 0
        self._bad = None


@contextmanager
def loss_scaling(scaling: LossScaling) -> Iterator[LossScaling]:
    """Scales every backward while the context is active."""
    with Patches() as patches:
        patches.wrap(torch.autograd, "backward", scaling.wrap_backward)
        before = register_optimizer_step_pre_hook(scaling.before_step)
        patches.hook("optimizer step pre-hook (loss scale)", before.remove)
        after = register_optimizer_step_post_hook(scaling.after_step)
        patches.hook("optimizer step post-hook (loss scale)", after.remove)
        yield scaling


def _multiply(gradients: list[torch.Tensor], factor: float) -> None:
    with torch.no_grad():
        dense = [one for one in gradients if not one.is_sparse]
        if dense:
            torch._foreach_mul_(dense, factor)
        for one in gradients:
            if one.is_sparse:
                one.mul_(factor)
