"""Steps that nothing is pulled for: of a loop that changes its parameters itself, and what their forwards hold.

`loss.backward()` and then `p.data -= lr * p.grad` is how the textbooks begin. Nothing of the update can be heard, so a
step ends where the next one shows: where gradients are set to zero by `zero_grad`, else at the next forward that
records gradients, else (no module at all) at the end of the backward. Where a loader is pulled from, each batch is one.
"""

from __future__ import annotations

from gpu_doctor.capture.account import Account
from gpu_doctor.recording.steps import OTHER, PHASE_COUNT


class OwnUpdates(Account):
    """The part of the ledger that knows such steps."""

    own: bool | None = None
    """The loop has such steps; None = not known yet."""
    owes = False
    """A backward was heard, and no end of its step since."""
    clears = False
    """`zero_grad` is heard."""
    heard_update = False
    """What may have been the open step's update was heard."""

    asks = fed = 0
    """Of steps that nothing is pulled for: id of the module whose forward was asked for its samples last, and of the
    one whose samples are counted."""
    gathers = False
    """A backward came since, and gradients were neither used nor cleared: its next forward is of the same step."""

    def _own_backward(self, asked: bool) -> None:
        """A backward begins; `asked`: in a step for which a batch was pulled. Called before its phase begins."""
        if self.owes and not self.clears:
            self._own_step()  # since the last one nothing was heard: it ends where that ended
        self.owes = not (asked or self.evaluating or self.own is False or self.alone is None)

    def launched(self) -> None:
        """A backward has ended: where no optimizer steps, nothing else on the device is heard of until the step ends.

        A step of its own shows late (see above), so what the device does in it ends here; where `zero_grad` is heard it
        ends there, so that the update is the step's, and so it does where the update is made under `torch.no_grad`
        (see `update_ended`). Of other loops the update is not heard, and could be taken for a gap: they are not read.
        """
        marks = self.marks  # the clock's first error takes it away
        if marks is None:
            return
        if self.owes:
            marks.stepped()
            return
        marks.part(OTHER)
        if not self.any_optimizer:
            marks.launched()

    def update_ended(self) -> None:
        """A `torch.no_grad` has ended after a backward: as far as is known, the update was made in it."""
        if self.owes and self.marks is not None:
            self.heard_update = True
            self.marks.updated()

    def _own_step(self) -> None:
        """A step ends at the mark, if the loop has such steps."""
        self.owes = False
        if self.marks is not None and not (self.clears or self.heard_update):
            self.marks.unheard()
        self.heard_update = False
        if self.own is None:
            self.own = self.alone is not None and not self.any_optimizer and self.alone()
        if self.own:
            self.any_optimizer = self.trains = True  # from now on a pass without gradients is an evaluation
            self._settle()
            self._close(self.mark, self.acc)
            self.acc = [0] * PHASE_COUNT

    # ---- what steps without a loader hold ------------------------------------------------------------------------

    def wants_samples(self, module: int) -> bool:
        """Whether a forward should say how many samples it holds: nothing was pulled for the open step.

        Args:
            module: id of the one that is called. It is asked again where its gradients are being accumulated.
        """
        self.asks = module
        if self.now.batches:
            return False
        new = self.owes or self.now.forward_samples != self.now.forward_samples
        return new or (self.gathers and module == self.fed)

    def _fed(self, samples: float) -> None:
        """A forward that is learned from begins: its samples are the step's, or more of them (accumulation)."""
        now = self.now
        if now.forward_samples != now.forward_samples:
            now.forward_samples, self.fed = samples, self.asks
        elif self.gathers:
            if samples == samples and self.asks == self.fed:
                now.forward_samples += samples
            self.gathers = False
