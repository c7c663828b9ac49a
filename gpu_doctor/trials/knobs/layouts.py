"""Weights stored channels last for a run, and stored as they were afterwards: parameters, gradients, optimizer state.

Only the order of the bytes changes, never a value and never the identity of a tensor.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.knobs.trained_modules import parameters_of

_IMAGE_DIMS: Final = 4
WRAPPERS: Final = ("FullyShardedDataParallel", "DistributedDataParallel")
"""They have laid the weights or gradients out in flat memory already."""


class Layouts:
    """Converts modules as they are met, and what optimizers keep of them; `restore` puts the bytes back in order."""

    def __init__(self) -> None:
        self.converted = 0
        """Tensors of modules that are stored channels last now."""
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._modules: list[nn.Module] = []
        self._optimizers: dict[int, Optimizer] = {}

    def convert(self, module: nn.Module) -> None:
        """Stores every 4D parameter and buffer of a module that convolves channels last.

        Raises:
            Refused: before anything was changed, if other tensors lie in the same memory and would be left behind.
        """
        if not any(_convolves(part) for part in module.modules()):
            return
        if type(module).__name__ in WRAPPERS:
            raise Refused(wrapped(type(module).__name__))
        tensors = [*module.parameters(), *module.buffers()]
        wanted = [one for one in tensors if _images(one) and id(one) not in self._kept]
        for one in wanted:
            if one.untyped_storage().is_shared() or one.untyped_storage().nbytes() != one.numel() * one.element_size():
                raise Refused(
                    f"Weights of {type(module).__name__} share their memory with other tensors, which would be "
                    "left behind if they were stored anew: change the layout where the model is made."
                )
        self._modules.append(module)
        for one in wanted:
            self._to_last(one)
            self.converted += 1
            if one.grad is not None and _images(one.grad):
                self._to_last(one.grad)

    def follow(self, optimizer: Optimizer) -> None:
        """Stores what the optimizer keeps of converted parameters (momentum, averages) channels last as well."""
        self._optimizers[id(optimizer)] = optimizer
        for parameter in parameters_of(optimizer):
            if id(parameter) in self._kept:
                for one in _state_of(optimizer, parameter):
                    if id(one) not in self._kept:
                        self._to_last(one)

    def _to_last(self, tensor: torch.Tensor) -> None:
        before = tensor.data
        self._kept[id(tensor)] = (tensor, before)
        tensor.data = before.contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def restore(self) -> None:
        """What was stored elsewhere goes back to the memory it came from; what the run made is made channels first."""
        parameters = [tensor for tensor, _ in self._kept.values()]
        grads = [one.grad for one in parameters if one.is_leaf and one.grad is not None]
        made = [one for one in grads if one.dim() == _IMAGE_DIMS and one.layout == torch.strided]
        made += [
            one
            for optimizer in self._optimizers.values()
            for parameter in parameters_of(optimizer)
            if id(parameter) in self._kept
            for one in _state_of(optimizer, parameter)
        ]
        for one in made:
            if id(one) not in self._kept:
                one.data = one.data.contiguous()
        for tensor, before in self._kept.values():
            if tensor.data.shape == before.shape and tensor.device == before.device and tensor.dtype == before.dtype:
                before.copy_(tensor.data)
                tensor.data = before
            else:  # the loop moved or resized it: its old memory no longer fits
                tensor.data = tensor.data.contiguous()
        self._kept.clear()
        self._modules.clear()
        self._optimizers.clear()


def wrapped(name: str) -> str:
    """Why the model of this wrapper keeps its layout."""
    return (
        f"{name} has laid the weights or gradients out in flat memory: change the layout before the model is wrapped."
    )


def _convolves(module: nn.Module) -> bool:
    return isinstance(module, (nn.Conv2d, nn.ConvTranspose2d))


def _images(tensor: torch.Tensor) -> bool:
    """Four dimensions and stored channels first."""
    return (
        not is_lazy(tensor)  # no shape yet
        and tensor.dim() == _IMAGE_DIMS
        and tensor.layout == torch.strided
        and not tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _state_of(optimizer: Optimizer, parameter: torch.Tensor) -> list[torch.Tensor]:
    state: dict[str, Any] = optimizer.state.get(parameter) or {}
    found = [one for one in state.values() if isinstance(one, torch.Tensor) and one.shape == parameter.shape]
    return [one for one in found if one.dim() == _IMAGE_DIMS and one.layout == torch.strided]
