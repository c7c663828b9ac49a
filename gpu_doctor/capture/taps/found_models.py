"""Remembers the outermost modules of a loop as they are found, each with its listener; none is kept alive."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gpu_doctor.capture.taps.listener import Listener


class FoundModels:
    """Modules by identity, in the order in which they were found; it forgets the dead."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}

    def add(self, module: nn.Module, listener: Listener) -> None:
        """Remembers a module, and the listener that was made for it."""
        self._listeners = {key: one for key, one in self._listeners.items() if one.ref() is not None}
        self._listeners[id(module)] = listener

    def remove(self, module: nn.Module) -> None:
        """Forgets a module, if it is known."""
        self._listeners.pop(id(module), None)

    def get(self, module: nn.Module) -> Listener | None:
        """Returns the listener of a module, None if it is not known."""
        listener = self._listeners.get(id(module))
        return listener if listener is not None and listener.ref() is module else None

    def __contains__(self, module: nn.Module) -> bool:
        return self.get(module) is not None

    def listeners(self) -> list[Listener]:
        """Returns the listeners of the modules alive."""
        return [one for one in list(self._listeners.values()) if one.ref() is not None]

    def alive(self) -> list[nn.Module]:
        """Returns the modules alive."""
        return [module for one in list(self._listeners.values()) if (module := one.ref()) is not None]

    def ids(self) -> set[int]:
        """Returns the ids of the modules alive and of all modules inside of them."""
        return {id(module) for module in self.alive()}.union(*(one.inside for one in self.listeners()))

    def holding(self, parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
        """Returns the modules that hold some of the parameters and that no other one contains."""
        wanted = {id(one) for one in parameters}
        inner = set[int]().union(*(one.inside for one in self.listeners()))
        holders = [one for one in self.listeners() if not wanted or not one.parameters.isdisjoint(wanted)]
        return [module for one in holders if (module := one.ref()) is not None and id(module) not in inner]

    def unheld(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the parameters that none of the modules holds."""
        held = set[int]().union(*(one.parameters for one in self.listeners()))
        return [one for one in parameters if id(one) not in held]

    def clear(self) -> None:
        """Forgets all of them."""
        self._listeners.clear()
