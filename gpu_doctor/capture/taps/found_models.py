"""Remembers the outermost modules of a loop as they are found; none is kept alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch
from torch import nn

from gpu_doctor.capture.describe import models


class FoundModels:
    """A set of modules that forgets the dead."""

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[nn.Module]] = {}

    def add(self, modules: Iterable[nn.Module]) -> None:
        """Those not known yet come last."""
        self._refs = {key: ref for key, ref in self._refs.items() if ref() is not None}
        for one in modules:
            self._refs.setdefault(id(one), weakref.ref(one))

    def remove(self, module: nn.Module) -> None:
        """Forgets one, if it is known."""
        self._refs.pop(id(module), None)

    def __contains__(self, module: nn.Module) -> bool:
        ref = self._refs.get(id(module))
        return ref is not None and ref() is module

    def alive(self) -> list[nn.Module]:
        """In the order in which they came."""
        return [one for ref in list(self._refs.values()) if (one := ref()) is not None]

    def holding(self, parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
        """Those that hold some of the parameters and that none of the others contains, see `models.holding`."""
        return models.holding(self.alive(), parameters)

    def unheld(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """The parameters that none of them holds."""
        held = {id(p) for module in self.alive() for p in module.parameters()}
        return [one for one in parameters if id(one) not in held]
