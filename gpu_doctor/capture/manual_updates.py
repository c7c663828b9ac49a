"""Finds the steps of a loop that updates its parameters by hand: `loss.backward()`, then `p.data -= lr * p.grad`.

No tap sees such an update. So a step with a backward ends where the next step shows: where `zero_grad` clears the
gradients; in a loop that never calls it, at the next forward that records gradients; and in a loop without any module,
where its backward ended. In a loop that uses a loader, each batch is a step instead.
"""

from __future__ import annotations


class ManualUpdates:
    """State of a loop that updates by hand; the step clock reads it and ends the steps itself."""

    __slots__ = ("by_hand", "step_pending", "zeroes")

    def __init__(self) -> None:
        self.by_hand: bool | None = None
        """True if the loop updates its parameters by hand, False if an optimizer does, None if not known yet."""
        self.step_pending = False
        """True if a backward came and its step has not ended."""
        self.zeroes = False
        """True if the loop calls `zero_grad`: its steps end there."""

    def set_by_hand(self, by_hand: bool) -> None:
        """Records whether the loop updates by hand; that an optimizer owns the parameters is final."""
        self.by_hand = by_hand and self.by_hand is not False
        self.step_pending = self.step_pending and self.by_hand

    def ends_at_backward(self) -> bool:
        """True if a backward begins another step: no `zero_grad` separates the steps of this loop."""
        return self.step_pending and not self.zeroes

    def ends_at_forward(self, grad: bool) -> bool:
        """True if a forward begins another step; `grad`: it records gradients."""
        return self.step_pending and grad and not self.zeroes
