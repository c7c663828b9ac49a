"""Detects loops that update their parameters by hand: no known optimizer owns the parameters that get gradients.

The graph of the first backward is inspected and the answer recorded for the step clock. If no optimizer steps
afterwards either, the modules that hold these parameters are the loop's model.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.events import BY_HAND
from gpu_doctor.capture.held import HELD_NS, MOST_HELD
from gpu_doctor.capture.taps.discovery import Discovery
from gpu_doctor.capture.taps.tap import TapScope


class ByHand:
    """Decides if a loop updates its parameters by hand; consulted before each backward until an optimizer steps."""

    def __init__(self, scope: TapScope, found: Discovery) -> None:
        self._scope, self._found, self._log = scope, found, scope.recorder.log
        self._leaves: list[weakref.ref[torch.Tensor]] = []
        self._began_ns = self._backwards = 0
        self.begun = self._done = False
        """True once the first backward was inspected, and once the model was searched for, respectively."""

    def due(self) -> bool:
        """Returns True if the backward that begins is to be inspected.

        That is the first backward, and a later one when no optimizer has stepped meanwhile. A loop that pulls batches
        may accumulate the gradients of many before its first step, so it gets time; and if fewer than half of its
        batches have a backward, it does not train.
        """
        log = self._log
        self._backwards += 1
        if self._done or not self.begun or not log.pulled:
            return not self._done
        many = log.steps > MOST_HELD or log.clock() - self._began_ns > HELD_NS
        return many and 2 * self._backwards > log.steps

    def begins(self, leaves: Sequence[torch.Tensor]) -> None:
        """Records whose parameters the first backward gives gradients to.

        Args:
            leaves: The parameters that get gradients; empty if functional copies of them do.
        """
        self.begun, self._began_ns = True, self._log.clock()
        self._leaves = [weakref.ref(leaf) for leaf in leaves]
        if not self._log.pulled:  # else each batch is a step, whoever owns the parameters
            self._record(leaves)
        self._scope.made.join(self._made)

    def goes_on(self) -> None:
        """Describes the model by the parameters that get gradients, as no optimizer has stepped so far."""
        self._done = True
        leaves = self._alive()
        if self._record(leaves) and leaves:
            self._scope.recorder.facts.update(models.described(self._found.trained_by_hand(leaves), leaves))

    def _made(self, optimizer: Any) -> None:
        if leaves := self._alive():
            self._record(leaves)

    def _alive(self) -> list[torch.Tensor]:
        return [leaf for ref in self._leaves if (leaf := ref()) is not None]

    def _record(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Records for the step clock, and returns, True if no optimizer owns any of the parameters."""
        scope = self._scope
        by_hand = not any(leaf in scope.owned for leaf in leaves) and scope.owners().isdisjoint(map(id, leaves))
        self._log.note((BY_HAND, self._log.clock(), by_hand))
        return by_hand
