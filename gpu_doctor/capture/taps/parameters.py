"""Remembers the parameters that were seen, by identity; none is kept alive, and a dead one's id is forgotten."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Final

import torch

FEWEST: Final = 256
"""Parameters up to which the dead among them are not looked for."""


class Parameters:
    """A set of tensors that forgets the dead: loops over folds, or over learning rates, make their model anew."""

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[torch.Tensor]] = {}
        self._most = FEWEST
        """When there are more, the dead are taken out: of a sweep's models each is then gone through a few times."""

    def add(self, given: Iterable[torch.Tensor]) -> None:
        """Adds those not known yet, at the end."""
        for one in given:
            if one not in self:
                self._refs[id(one)] = weakref.ref(one)
        if len(self._refs) > self._most:
            self._refs = {key: ref for key, ref in self._refs.items() if ref() is not None}
            self._most = max(2 * len(self._refs), FEWEST)

    def __contains__(self, one: torch.Tensor) -> bool:
        ref = self._refs.get(id(one))
        return ref is not None and ref() is one

    def alive(self) -> list[torch.Tensor]:
        """Returns those alive, in the order in which they came."""
        return [one for ref in list(self._refs.values()) if (one := ref()) is not None]
