"""Counts forwards in evaluation mode that record a graph for gradients although no backward follows."""

from __future__ import annotations

from typing import Any

from gpu_doctor.capture.describe.batches import tensors_in


class Evaluations:
    """Counts of the evaluation forwards on the training thread.

    Counted are those of trained outermost modules, or of all outermost modules in a loop that trains none.
    """

    def __init__(self) -> None:
        self.forwards = self.unused = 0
        """Number of forwards, and number of those that recorded a graph which no backward used."""
        self.backwards = 0
        """Number of backwards and of calls of `autograd.grad` so far."""
        self.pending = 0
        """Number of forwards with a graph since the last training forward: the next backward may be theirs."""
        self._seen = 0
        """Value of `backwards` at the first pending forward."""

    def add(self, output: Any, gradients: bool) -> None:
        """Counts a forward in evaluation mode that has returned; `gradients` is True if they are switched on."""
        self.forwards += 1
        if self.backwards != self._seen:
            self.pending, self._seen = 0, self.backwards
        if gradients and any(tensor.grad_fn is not None for tensor in tensors_in(output)):
            self.pending += 1

    def settle(self) -> None:
        """Counts the pending forwards as unused if no backward came; called at a training forward and at the end."""
        if self.backwards == self._seen:
            self.unused += self.pending
        self.pending, self._seen = 0, self.backwards
