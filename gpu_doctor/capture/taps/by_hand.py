"""Whether the loop changes its parameters itself: no optimizer that is known owns what its backwards make gradients of.

The first backward is looked at, and the step clock is told. Where no optimizer steps after it either, the modules of
these parameters are the loop's model.
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
    """Asked before the backwards of a loop in which no optimizer has stepped yet."""

    def __init__(self, scope: TapScope, found: Discovery) -> None:
        self._scope, self._found, self._log = scope, found, scope.recorder.log
        self._leaves: list[weakref.ref[torch.Tensor]] = []
        self._began_ns = self._backwards = 0
        self.begun = self._done = False
        """The first backward was looked at; the model was looked for."""

    def due(self) -> bool:
        """Whether a backward that begins is to be looked at: the first, and one when no optimizer steps after it.

        A loop that pulls batches may gather the gradients of some before its first step; one that makes gradients of
        few of them learns from none.
        """
        log = self._log
        self._backwards += 1
        if self._done or not self.begun or not log.pulled:
            return not self._done
        many = log.steps > MOST_HELD or log.clock() - self._began_ns > HELD_NS
        return many and 2 * self._backwards > log.steps

    def begins(self, leaves: Sequence[torch.Tensor]) -> None:
        """The first backward begins, which gives gradients to these; none where they are given to stand-ins."""
        self.begun, self._began_ns = True, self._log.clock()
        self._leaves = [weakref.ref(one) for one in leaves]
        if not self._log.pulled:  # else each batch is a step, whoever owns what
            self._tell(leaves)
        self._scope.made.join(self._made)

    def goes_on(self) -> None:
        """A later backward begins, and no optimizer has stepped so far."""
        self._done = True
        leaves = self._alive()
        if self._tell(leaves) and leaves:
            self._scope.recorder.facts.update(models.described(self._found.learned(leaves), leaves))

    def _made(self, optimizer: Any) -> None:
        if leaves := self._alive():
            self._tell(leaves)

    def _alive(self) -> list[torch.Tensor]:
        return [leaf for ref in self._leaves if (leaf := ref()) is not None]

    def _tell(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Tells the step clock whether no optimizer owns any of these."""
        scope = self._scope
        by_hand = not any(one in scope.owned for one in leaves) and scope.owners().isdisjoint(map(id, leaves))
        self._log.note((BY_HAND, self._log.clock(), by_hand))
        return by_hand
