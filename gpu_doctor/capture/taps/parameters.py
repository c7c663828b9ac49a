"""A set of the parameters seen so far, by identity. It keeps none alive and drops those that are garbage-collected."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Final

import torch

FEWEST: Final = 256
"""Number of parameters up to which those garbage-collected are not searched for."""


class Parameters:
    """Ordered set of weakly referenced tensors: loops over folds or learning rates make a new model in each turn."""

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[torch.Tensor]] = {}
        self._most = FEWEST
        """Number of references above which dead ones are dropped. It doubles, so each is visited only a few times."""

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Adds the tensors that are not in the set yet, at the end."""
        for tensor in tensors:
            if tensor not in self:
                self._refs[id(tensor)] = weakref.ref(tensor)
        if len(self._refs) > self._most:
            self._refs = {key: ref for key, ref in self._refs.items() if ref() is not None}
            self._most = max(2 * len(self._refs), FEWEST)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        ref = self._refs.get(id(tensor))
        return ref is not None and ref() is tensor

    def alive(self) -> list[torch.Tensor]:
        """Returns the tensors that are alive, in the order in which they were added."""
        return [tensor for ref in list(self._refs.values()) if (tensor := ref()) is not None]
