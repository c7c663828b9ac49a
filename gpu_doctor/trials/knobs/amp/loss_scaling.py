"""Gradient scaling for fp16 from outside the user's code: torch.amp.GradScaler, with no line of the user's to change.

The loss is scaled as it goes into backward, and the gradients are scaled back as soon as backward returns. So whatever
the user's code does with gradients before the step (clipping in any of its spellings, norms, logging, accumulation)
sees true gradients. The scale is a power of two, so scaling and scaling back lose nothing. A scaler scales an
optimizer's gradients back once a step, and here every backward needs it: each is an optimizer of its own to it.
"""

from __future__ import annotations

import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import Refused


class _Gradients:
    """What a backward has left, in the form of an optimizer: the scaler takes its step if all of it is finite."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.param_groups = [{"params": parameters}]
        self.finite = False

    def step(self) -> None:
        """Notes that the scaler has found nothing infinite."""
        self.finite = True


class LossScaling:
    """A GradScaler and what it has to be told of one optimizer."""

    def __init__(self) -> None:
        self.scaler: Any = None
        """A torch.amp.GradScaler for the device of the first loss."""
        self.skipped = 0
        """Steps that changed nothing because a gradient was not finite."""
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepping: weakref.ref[Optimizer] | None = None
        self._backwards: list[_Gradients] = []
        self._inside = False
        self._set_aside: list[tuple[torch.Tensor, torch.Tensor]] = []

    def meet(self, optimizer: Optimizer) -> None:
        """Scales for this optimizer's parameters from the next backward on."""
        self._optimizers.add(optimizer)

    def _with_gradients(self) -> list[torch.Tensor]:
        parameters = {
            id(p): p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]
        }
        return [p for p in parameters.values() if p.grad is not None]

    def wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward` with the loss scaled and the gradients scaled back."""

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not self._optimizers:  # inside: a checkpoint's backward within ours
                return original(tensors, *args, **kwargs)
            if kwargs.get("create_graph") or (len(args) > 2 and args[2]):
                raise Refused("backward(create_graph=True) cannot be scaled from outside: try bf16.")
            losses = tensors if isinstance(tensors, (tuple, list)) else [tensors]
            if self.scaler is None:
                self.scaler = torch.amp.GradScaler(losses[0].device.type)
            scaled = self.scaler.scale([one.float() for one in losses])
            self._scale_again()
            self._inside = True
            try:
                return original(scaled, *args, **kwargs)
            finally:
                self._inside = False
                self._scale_back()

        return backward

    @torch.no_grad()
    def _scale_again(self) -> None:
        """Scales what earlier backwards have accumulated, as the next one adds to it."""
        by_device: defaultdict[torch.device, list[torch.Tensor]] = defaultdict(list)
        for one in self._with_gradients():
            assert one.grad is not None
            by_device[one.grad.device].append(one.grad._values() if one.grad.is_sparse else one.grad)
        for device, gradients in by_device.items():
            torch._foreach_mul_(gradients, self.scaler.scale(torch.ones((), device=device)))

    def _scale_back(self) -> None:
        """Scales all gradients back, and has the scaler remember on the device whether one is not finite.

        At once, since clipping by value would turn an infinity into an ordinary number.

        Raises:
            Refused: if a gradient is float16, which GradScaler refuses.
        """
        parameters = self._with_gradients()
        if any(one.grad is not None and one.grad.dtype == torch.float16 for one in parameters):
            raise Refused("A parameter is float16 itself, and gradients in float16 cannot be scaled back: try bf16.")
        if parameters:
            self._backwards.append(_Gradients(parameters))
            self.scaler.unscale_(self._backwards[-1])

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
        if not self._backwards:
            return
        self.scaler.step(self._backwards[-1])  # what an earlier one left infinite is so still
        if self._backwards[-1].finite:
            return
        self.skipped += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._set_aside.append((parameter, parameter.grad))
                    parameter.grad = None

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Gives the gradients back and lets the scaler update its scale."""
        if optimizer not in self._optimizers or not self._backwards:
            return
        for parameter, gradient in self._set_aside:
            parameter.grad = gradient
        self._set_aside.clear()
        self.scaler.update()
        self._backwards.clear()


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
