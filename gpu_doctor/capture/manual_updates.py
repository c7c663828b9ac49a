"""The steps of a loop that changes its parameters itself: `loss.backward()`, then `p.data -= lr * p.grad`.

Nothing of such an update can be heard. So a step that a backward belongs to ends where the next one shows: where
`zero_grad` clears the gradients; in a loop that never calls it, at the next forward that records gradients; and without
any module at the end of the backward. Where a loader is pulled from, each batch is a step instead.
"""

from __future__ import annotations


class ManualUpdates:
    """What the step clock knows of such a loop; it closes the steps itself."""

    __slots__ = ("by_hand", "step_pending", "zeroes")

    def __init__(self) -> None:
        self.by_hand: bool | None = None
        """The loop changes its parameters itself; None = nothing has told yet, False = an optimizer does."""
        self.step_pending = False
        """A backward came, and its step has not ended."""
        self.zeroes = False
        """The loop calls `zero_grad`: its steps end there."""

    def told(self, by_hand: bool) -> None:
        """Who owns the parameters was found; that an optimizer does is final."""
        self.by_hand = by_hand and self.by_hand is not False
        self.step_pending = self.step_pending and self.by_hand

    def ends_at_backward(self) -> bool:
        """Whether a backward begins another step: nothing else was heard since the one before."""
        return self.step_pending and not self.zeroes

    def ends_at_forward(self, grad: bool) -> bool:
        """Whether a forward begins another step. `grad`: it records gradients."""
        return self.step_pending and grad and not self.zeroes
