"""Counts the forwards in evaluation mode that record gradients for which no backward comes."""

from __future__ import annotations

from typing import Any

from gpu_doctor.capture.describe.batches import tensors_in


class Evaluations:
    """Forwards of outermost modules that are trained, or of a loop that trains none, on the training thread."""

    def __init__(self) -> None:
        self.forwards = self.unused = 0
        """All of them, and those whose gradients were never asked for."""
        self.backwards = 0
        """Backwards and calls of `autograd.grad` so far."""
        self.pending = 0
        """Forwards with gradients since the last training forward: a backward that comes now may be theirs."""
        self._seen = 0
        """Backwards before the first pending forward."""

    def add(self, output: Any, gradients: bool) -> None:
        """Counts a forward in evaluation mode that has returned; `gradients`: they are switched on."""
        self.forwards += 1
        if self.backwards != self._seen:
            self.pending, self._seen = 0, self.backwards
        if gradients and any(one.grad_fn is not None for one in tensors_in(output)):
            self.pending += 1

    def settle(self) -> None:
        """A forward in training mode has come, or the run is over: the next backward is none of the pending ones'."""
        if self.backwards == self._seen:
            self.unused += self.pending
        self.pending, self._seen = 0, self.backwards
