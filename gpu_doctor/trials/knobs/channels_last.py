"""Knob `channels_last`: images and convolution weights stored pixel by pixel, as tensor cores and oneDNN read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gpu_doctor.cell import Edit, Edits
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.framework_fix import handed_model
from gpu_doctor.trials.knobs.draft import Draft
from gpu_doctor.trials.knobs.knob import NO_MODEL, TrialScope
from gpu_doctor.trials.knobs.on_off import OnOffKnob

WRAPPERS: Final = ("FullyShardedDataParallel", "DistributedDataParallel")
"""Wrappers that hold weights or gradients in flat memory."""
CONVOLUTIONS: Final = ("Conv2d", "ConvTranspose2d", "LazyConv2d")
NO_CONVOLUTION: Final = "The trained model has no 2D convolutions, so the layout makes no difference."


def flat(name: str) -> str:
    """Returns why a model of the class of this name keeps its layout; empty for one that does not."""
    keeps = f"{name} keeps weights or gradients in flat memory: change the layout before the model is wrapped."
    return keeps if name in WRAPPERS else ""


class ChannelsLast(OnOffKnob):
    """See `Knob`."""

    name = "channels_last"
    label = "channels last"
    changes = (
        "Sums are added up in another order, so the last digits of the losses differ; dropout may draw another mask."
    )
    lines_only = True
    written_late = 2

    def found(self, setup: Setup) -> bool | None:
        """See `Knob`."""
        model = setup.model
        if model is None or not model.convolutions:
            return None
        return 0 < model.channels_last == model.convolutions

    def reason(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        if setup == Setup():
            return ""
        if not setup.optimizers:
            return NO_MODEL
        if not value:
            found = self.found(setup)
            return "Your code stores the weights channels last itself: change it there." if found else ""
        if setup.layers and not any(name in CONVOLUTIONS for name in setup.layers):
            own = setup.model is not None and setup.model.convolutions > 0  # convolutions of the user's own classes
            return "" if own else NO_CONVOLUTION
        wrapper = setup.model.wrapper if setup.model is not None else ""
        return flat(wrapper)

    def is_noop(self, value: SettingValue, setup: Setup) -> bool:
        """See `Knob`."""
        return not value or super().is_noop(value, setup)

    def draws_anew(self, setup: Setup) -> bool:
        """See `Knob`: dropout draws another mask."""
        return any("Dropout" in layer for layer in setup.layers)

    @contextmanager
    def turned(self, value: SettingValue, scope: TrialScope) -> Iterator[None]:
        """See `Knob`: the weights that names lead to are stored as they were; a trial puts back all others too."""
        import torch

        from gpu_doctor.capture.describe import named

        modules = named(scope.namespace, torch.nn.Module)
        held = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        first = [tensor for tensor in held if not torch.nn.parameter.is_lazy(tensor) and tensor.is_contiguous()]
        try:
            yield
        finally:
            for tensor in first:
                tensor.data = tensor.data.contiguous()

    def code(self, value: SettingValue, setup: Setup) -> str:
        """See `Knob`."""
        layout = "channels_last" if value else "contiguous_format"
        return (
            f"model = model.to(memory_format=torch.{layout})  # before the optimizer is made\n"
            f"inputs = inputs.to(memory_format=torch.{layout})"
        )

    def edit(self, settings: Settings, draft: Draft) -> Edits:
        """See `Knob`."""
        if not settings[self.name]:
            raise draft.no_line(self.name, settings[self.name])
        handed, (torch, edits) = handed_model(draft.cells), draft.torch()
        if handed is None:
            return [*edits, *draft.loop.channels_last(torch)]
        cell, node = handed
        begin, end, to = cell.begin(node), cell.end(node), f".to(memory_format={torch}.channels_last)"
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            return [*edits, (cell, Edit(end, end, to))]
        return [*edits, (cell, Edit(begin, begin, "(")), (cell, Edit(end, end, f"){to}"))]


KNOB = ChannelsLast()
