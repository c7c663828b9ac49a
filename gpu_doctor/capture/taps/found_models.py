"""The outermost modules found in a loop, each with its listener. They are not entry alive."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gpu_doctor.capture.taps.listener import Listener


class FoundModels:
    """Modules by identity, in the order in which they were found; those garbage-collected are dropped."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}

    def add(self, module: nn.Module, listener: Listener) -> None:
        """Adds a module with its listener."""
        self._listeners = {key: entry for key, entry in self._listeners.items() if entry.ref() is not None}
        self._listeners[id(module)] = listener

    def remove(self, module: nn.Module) -> None:
        """Removes a module, if it is known."""
        self._listeners.pop(id(module), None)

    def get(self, module: nn.Module) -> Listener | None:
        """Returns the listener of a module, None if it is not known."""
        listener = self._listeners.get(id(module))
        return listener if listener is not None and listener.ref() is module else None

    def __contains__(self, module: nn.Module) -> bool:
        return self.get(module) is not None

    def listeners(self) -> list[Listener]:
        """Returns the listeners of the modules that are alive."""
        return [listener for listener in list(self._listeners.values()) if listener.ref() is not None]

    def alive(self) -> list[nn.Module]:
        """Returns the modules that are alive."""
        return [module for listener in list(self._listeners.values()) if (module := listener.ref()) is not None]

    def ids(self) -> set[int]:
        """Returns the ids of the modules that are alive and of all modules inside them."""
        return {id(module) for module in self.alive()}.union(*(listener.inside for listener in self.listeners()))

    def holding(self, parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
        """Returns the modules that hold some of the parameters and lie in no other known module.

        Returns all such modules if there are no parameters.
        """
        wanted = {id(tensor) for tensor in parameters}
        inner = set[int]().union(*(listener.inside for listener in self.listeners()))
        holders = [entry for entry in self.listeners() if not wanted or not entry.parameters.isdisjoint(wanted)]
        return [module for entry in holders if (module := entry.ref()) is not None and id(module) not in inner]

    def unheld(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the parameters that none of the modules holds."""
        held = set[int]().union(*(listener.parameters for listener in self.listeners()))
        return [tensor for tensor in parameters if id(tensor) not in held]

    def clear(self) -> None:
        """Removes all modules."""
        self._listeners.clear()
