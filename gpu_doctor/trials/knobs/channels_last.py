"""Knob `channels_last`: images and convolution weights stored pixel by pixel, as tensor cores and oneDNN read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.patching import Patches
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.knob import Choice, Refused, TrialScope
from gpu_doctor.trials.knobs.layouts import WRAPPERS, Layouts, wrapped
from gpu_doctor.trials.knobs.loader import on_or_off
from gpu_doctor.trials.knobs.trained_modules import TrainedModules

CONVOLUTIONS: Final = ("Conv2d", "ConvTranspose2d", "LazyConv2d")
NO_CONVOLUTION: Final = "The trained model has no 2D convolutions, whose layout this is about."
_VIEW: Final = "view size is not compatible"


class ChannelsLast:
    """See `Knob`."""

    name = "channels_last"
    label = "channels last"
    safety = Safety.SAFE
    changes = (
        "Sums are added up in another order, so the last digits of the losses differ; dropout may draw another mask."
    )
    front = False

    def found(self, setup: Setup) -> bool | None:
        model = setup.model
        if model is None or not model.convolutions:
            return None
        return 0 < model.channels_last == model.convolutions

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        return tuple(Choice(value, "on" if value else "off", self.refusal(value, setup)) for value in (False, True))

    def parsed(self, text: str) -> bool:
        return on_or_off(text, self.name)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if value == self.found(setup):
            return ""
        if not setup.optimizers:
            return "No optimizer of torch stepped, so no trained module is known whose layout could be changed."
        if not value:
            found = self.found(setup)
            return "Your code stores the weights channels last itself: change it there." if found else ""
        if setup.layers and not any(name in CONVOLUTIONS for name in setup.layers):
            own = setup.model is not None and setup.model.convolutions > 0  # convolutions of the user's own classes
            return "" if own else NO_CONVOLUTION
        wrapper = setup.model.wrapper if setup.model is not None else ""
        return wrapped(wrapper) if wrapper in WRAPPERS else ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(bool(value), scope, value == self.found(scope.setup))

    def code(self, value: SettingValue, setup: Setup) -> str:
        layout = "channels_last" if value else "contiguous_format"
        return (
            f"model = model.to(memory_format=torch.{layout})  # before the optimizer is made\n"
            f"inputs = inputs.to(memory_format=torch.{layout})"
        )


KNOB = ChannelsLast()


@contextmanager
def _turned(value: bool, scope: TrialScope, as_written: bool) -> Iterator[None]:
    if as_written or not value:
        yield
        return
    patches, layouts = Patches(), Layouts()

    def call(original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trained.called(module)
        try:
            return original(module, *map(_last, args), **{name: _last(one) for name, one in kwargs.items()})
        except RuntimeError as error:
            if _VIEW in str(error):
                said = "calls .view() on images, which needs them channels first: write .reshape() or .flatten() there."
                raise Refused(f"{type(module).__name__} {said}") from error
            raise

    trained = TrainedModules(scope, patches, "channels_last", call)
    trained.allow = layouts.convert
    trained.on_optimizer = layouts.follow
    try:
        trained.start()
        yield
    finally:
        patches.restore()
        layouts.restore()
        if not layouts.converted:
            scope.notes.append("channels_last=True changed nothing: no trained module with 2D convolutions was seen.")
        scope.notes.extend(patches.notes)


def _last(value: Any) -> Any:
    """A batch of images, channels last; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dim() == 4 and value.layout == torch.strided:
        return value.contiguous(memory_format=torch.channels_last)
    return value
