"""Turns the knob `channels_last`: the weights of trained modules, what optimizers keep of them, and the batches.

Weights are stored so for a run, and as they were afterwards: parameters, gradients, optimizer state. Only the order of
the bytes changes, never a value and never the identity of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.trained_modules import TrainedModules, parameters_of

_IMAGE_DIMS: Final = 4
_VIEW: Final = "view size is not compatible"


class Layouts:
    """Converts modules as they are met, and what optimizers keep of them; `restore` puts the bytes back in order."""

    def __init__(self, refusal: Callable[[str], str]) -> None:
        """`refusal`: why a model of the class of this name keeps its layout; empty for one that does not."""
        self._refusal = refusal
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
        said = self._refusal(type(module).__name__)
        if said:
            raise Refused(said)
        tensors = [*module.parameters(), *module.buffers()]
        wanted = [one for one in tensors if _images(one) and id(one) not in self._kept]
        for one in wanted:
            if one.untyped_storage().is_shared() or one.untyped_storage().nbytes() != one.numel() * one.element_size():
                raise Refused(
                    f"Weights of {type(module).__name__} share memory with other tensors: change the layout where "
                    "the model is created."
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


@contextmanager
def channels_last(scope: TrialScope, refusal: Callable[[str], str]) -> Iterator[None]:
    """Stores images and convolution weights channels last while the context lasts (`refusal`: see `Layouts`)."""
    layouts = Layouts(refusal)

    def call(original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trained.called(module)
        try:
            return original(module, *map(_last, args), **{name: _last(one) for name, one in kwargs.items()})
        except RuntimeError as error:
            if _VIEW in str(error):
                said = "calls .view() on images, which fails with channels last: use .reshape() or .flatten() there."
                raise Refused(f"{type(module).__name__} {said}") from error
            raise

    try:
        with Patches(scope.notes) as patches:
            trained = TrainedModules(scope, patches, "channels_last", call)
            trained.allow = layouts.convert
            trained.on_optimizer = layouts.follow
            trained.start()
            yield
    finally:
        layouts.restore()
        if not layouts.converted:
            scope.notes.append("channels_last=True changed nothing: no trained module with 2D convolutions was seen.")


def _last(value: Any) -> Any:
    """A batch of images, channels last; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dim() == 4 and value.layout == torch.strided:
        return value.contiguous(memory_format=torch.channels_last)
    return value
