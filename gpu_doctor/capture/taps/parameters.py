"""Remembers the parameters that were seen, by identity; none is kept alive, and a dead one's id is forgotten."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch


class Parameters:
    """A set of tensors that forgets the dead: loops over folds, or over learning rates, make their model anew."""

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[torch.Tensor]] = {}

    def add(self, given: Iterable[torch.Tensor]) -> None:
        """Those not known yet come last."""
        self._refs = {key: ref for key, ref in self._refs.items() if ref() is not None}
        for one in given:
            self._refs.setdefault(id(one), weakref.ref(one))

    def __contains__(self, one: torch.Tensor) -> bool:
        ref = self._refs.get(id(one))
        return ref is not None and ref() is one

    def alive(self) -> list[torch.Tensor]:
        """In the order in which they came."""
        return [one for ref in list(self._refs.values()) if (one := ref()) is not None]

    def ids(self) -> set[int]:
        """Of those alive; good for as long as nothing is freed."""
        return {id(one) for one in self.alive()}
