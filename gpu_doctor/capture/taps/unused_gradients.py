"""Notices parameters that get a gradient in every backward though no optimizer steps them: once, in the first steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.attention import TABLES
from gpu_doctor.capture.describe.models import size_of
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import ModelFacts

LOOK_AT: Final = 4
"""The optimizer step after which it is known: of a GAN both optimizers have stepped twice by then."""
WORTH: Final = 0.05
"""For a smaller part of the backward nobody asks for the optimizers of the whole process, which takes some 60 ms: they
are asked for when the first optimizer is met, in the step that is left out as warm-up anyway."""


class Unstepped:
    """Looks at gradients after the first optimizer step and again after a few: one that is new was just computed.

    A gradient left over from an earlier cell does not change, and is not counted.
    """

    def __init__(self, scope: TapScope) -> None:
        """Looks at the models that the scope's code names, besides those it is told of."""
        self._scope, self._steps = scope, 0
        self._modules: dict[int, nn.Module] = {}
        self._before: list[tuple[torch.Tensor, weakref.ref[torch.Tensor], int]] = []
        self._everyones: set[int] | None = None
        """Parameters of all optimizers of the process; None = nobody asked."""
        self._found: dict[str, Any] = {}

    def met(self, modules: Iterable[nn.Module]) -> None:
        """An optimizer of these outermost modules was met: its steps are heard until it is known."""
        if self._steps >= LOOK_AT:
            return
        self._modules.update({id(one): one for one in modules})
        if self.stepped not in self._scope.stepped:
            self._scope.stepped.append(self.stepped)
            # Besides those that hold what is stepped: a backbone of its own. Names alone; no scan of the process.
            self._modules.update({id(one): one for one in models.outermost(self._scope.namespace)})
            if self._everyones is None and self._worth():
                self._everyones = models.owned()

    def end(self) -> None:
        """The run is over: nothing of the model is held any longer."""
        self._modules, self._before, self._everyones = {}, [], None
        if self.stepped in self._scope.stepped:
            self._scope.stepped.remove(self.stepped)

    def told(self, facts: ModelFacts) -> ModelFacts:
        """The make of the model, with what was found by now."""
        return replace(facts, **self._found)

    def stepped(self) -> None:
        """An optimizer has stepped, on the training thread."""
        self._steps += 1
        if self._steps == 1:
            self._modules.update({id(one): one for one in models.outermost(self._scope.namespace)})
            self._before = [
                (p, weakref.ref(p.grad), p.grad._version)
                for p in _unowned(self._modules.values(), self._scope.owned.ids())
                if p.grad is not None
            ]
        if self._steps >= LOOK_AT or (self._steps == 1 and not self._before):
            self._scope.stepped.remove(self.stepped)
            self._steps = LOOK_AT
            self._judge()

    def _worth(self) -> bool:
        """Whether freezing all that no optimizer met so far owns would save so much that it is worth a scan."""
        owned, modules = self._scope.owned.ids(), self._modules.values()
        return bool(spared(modules, owned, _unowned(modules, owned))["spared_shares"][1] >= WORTH)

    def _judge(self) -> None:
        owned = self._scope.owned.ids()
        fresh = [
            p
            for p, gradient, version in self._before
            if id(p) not in owned and p.grad is not None and (gradient() is not p.grad or p.grad._version != version)
        ]
        modules = list(self._modules.values())
        self._modules, self._before = {}, []
        self._found = spared(modules, owned, fresh)
        if self._found["spared_shares"][1] >= WORTH:
            # An optimizer that has not stepped yet owns its parameters all the same.
            everyones = models.owned() if self._everyones is None else self._everyones
            self._found = spared(modules, owned | everyones, [p for p in fresh if id(p) not in everyones])


def spared(modules: Iterable[nn.Module], owned: set[int], fresh: Iterable[torch.Tensor]) -> dict[str, Any]:
    """What freezing the parameters in `fresh` saves, under the names of `ModelFacts`.

    A backward makes two products with a layer's weight: the gradient of the weight, and that of the layer's input. The
    first goes for every frozen layer, the second only before the first layer that is trained, in the order in which
    the module holds them. Of a module in which nothing is trained it is not known whether it comes before the trained
    ones (a backbone) or after (a loss). A table of embeddings makes no product.

    Args:
        modules: outermost modules. owned: ids of the parameters that are trained. fresh: those that get gradients
            for nothing.
    """
    wasted = {id(p) for p in fresh}
    products = least = most = count = largest = 0
    place = ""
    for module in modules:
        tables = {id(p) for part in module.modules() if isinstance(part, TABLES) for p in part.parameters()}
        named = list(module.named_parameters())
        trained_before, trained = False, any(id(p) in owned for _, p in named)
        for name, parameter in named:
            elements = size_of(parameter)[0]
            if id(parameter) in wasted:
                count += elements
                if elements > largest:
                    largest, place = elements, name
            if id(parameter) in tables:
                continue
            if id(parameter) in owned:
                trained_before = True
                products += 2 * elements
            elif id(parameter) in wasted:
                products += 2 * elements
                most += elements if trained_before else 2 * elements
                least += elements if trained_before or not trained else 2 * elements
    shares = (least / products, most / products) if products else (0.0, 0.0)
    return {"unstepped": count, "unstepped_place": place, "spared_shares": shares}


def _unowned(modules: Iterable[nn.Module], owned: set[int]) -> list[torch.Tensor]:
    found = {id(p): p for module in modules for p in module.parameters() if p.requires_grad and id(p) not in owned}
    return list(found.values())
