"""What the loop's events mean: which batches, forwards and optimizer steps make a step, and what is an evaluation.

A step begins when the loop asks for its batch and ends when it asks for the next one after an `optimizer.step()`; where
nothing is pulled from a loader, it ends at the optimizer step itself. A loop without an optimizer has a step per batch.

Only the training thread writes here. Nothing in this file reads a tensor, takes a lock, or waits for a device.
"""

from __future__ import annotations

from gpu_doctor.capture.evaluations import Evaluations
from gpu_doctor.capture.eventnotes import BACK
from gpu_doctor.capture.stepcounts import Pull as Pull
from gpu_doctor.recording.steps import (
    BACKWARD,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    LOSS,
    NO_GRAD,
    OPTIMIZER,
    OTHER,
    PHASE_COUNT,
    TRAINING,
    TRANSFER,
)


class Ledger(Evaluations):
    """The account of one run, told what happens in the loop."""

    # ---- batches ------------------------------------------------------------------------------------------------

    def ask(self, pull: Pull, grad_enabled: bool) -> int:
        """The loop asks a loader for its next batch; returns the phase to go back to."""
        ended = bool(self.stepped)
        if not self.started:
            self.begin()
        before = self._switch(DATA_WAIT)
        if self.no_loss is not None:
            self._not_a_loss()
        if self.unused is not None:
            self._unused()
        now = self.mark
        last = self.last
        if self.fetched and last is not None:
            if self.learned:
                for one in (last, *self.beside):
                    one.learned, one.evaluation = True, False
                self.beside.clear()
            else:
                self._judge(last, last is pull)
                if last is not pull and last.loader is pull.loader and not pull.delivered:
                    self._left(last)
                if last is not pull and not self.again and last.delivered > 1 and not last.evaluation:
                    self.beside.append(last)
        if self.stepped:
            self._settle()
            self._close(now, self.acc)
            self.acc = [0] * PHASE_COUNT
        elif (
            not self.any_optimizer
            and self.now.batches
            # A first look at held-out data, before any training, is asked for without gradients and then left.
            and (pull is self.lead or self.eval_forward or self.learned or (self.blind and grad_enabled))
        ):
            self._close_batch(now)
        if self.trains and not grad_enabled and not pull.learned:
            pull.evaluation = True
        self.evaluating = pull.evaluation
        if not self.evaluating:
            self.asked = True
        self.again = last is pull
        self.last, self.blind = pull, not grad_enabled
        if self.again and self.fetched and self.any_optimizer and not (ended or self._heard()):
            self._ahead()
        else:
            self.ahead, self.samples_ahead = 0, 0.0
            self.acc_at_ask, self.edge_at_ask, self.syncs_at_ask = self.acc.copy(), self.now.edge_ns, self.now.syncs
        self.learned = self.forwarded = self.eval_forward = self.fetched = False
        before = OTHER if before == LOSS else before
        return self.steady.step_ended(pull, before) if ended else before

    def delivered(self, pull: Pull, samples: float, before: int) -> None:
        """The batch that was asked for is here: `samples` in it, NaN if that cannot be read."""
        asked_at = self.mark
        self._switch(before)
        pull.delivered += 1
        self.fetched = True
        self.last_samples = samples
        if self.evaluating:
            if pull.delivered == 1:
                self.evaluation_edge_ns += self.mark - asked_at
            return
        if pull.delivered == 1:
            self.now.edge_ns += self.acc[DATA_WAIT] - self.acc_at_ask[DATA_WAIT]
        self._count(pull, samples)

    def ended(self, before: int) -> None:
        """The iterator had no further batch, or failed."""
        asked_at = self.mark
        self._switch(before)
        if self.evaluating:
            self.evaluation_edge_ns += self.mark - asked_at
            self.tail = self.mark, self.acc.copy()
            if self.marks is not None:
                self.marks.evaluated()
        else:
            self.now.edge_ns += self.mark - asked_at  # workers that do not stay are ended there, and joined
        self.evaluating = False
        self.last, self.fetched = None, False
        self.beside.clear()
        self._pass_ended()

    def opening(self, evaluation: bool) -> int:
        """`iter(loader)` begins (worker start); returns the phase to hand to `opened`."""
        if not self.started:
            self.begin()
        before = self._switch(EVALUATION if evaluation and self.trains else DATA_WAIT)
        if not evaluation:
            # Who counts a loader's batches (Lightning) never asks past its end: the next loader ends the evaluation.
            self.evaluating = False
        return before

    def opened(self, before: int) -> None:
        """The iterator that `opening` announced is there: an epoch's edge."""
        began, in_loader = self.mark, self.phase == DATA_WAIT
        self._switch(before)
        if in_loader and self.evaluating:
            self.evaluation_edge_ns += self.mark - began
        elif in_loader:
            self.now.edge_ns += self.mark - began

    # ---- model and optimizer ------------------------------------------------------------------------------------

    def forward(self, training: bool, grad: bool, trained: bool, samples: float) -> int:
        """An outermost module's forward begins; returns the phase to hand to `forward_done`.

        Args:
            training: the module's mode. grad: whether gradients are recorded. trained: whether an optimizer of this
                run owns its parameters. samples: batch dimension of its first tensor argument, NaN if unknown.
        """
        if not self.started:
            self.begin()
        before = self._switch(NO_GRAD if training and not grad else FORWARD)
        if self.no_loss is not None:
            self._not_a_loss()
        if self.owes and grad and not self.clears:
            self._own_step()
        if training and grad:
            self.forwarded = True
            if self.unused is not None:
                self._unused()
            if self.evaluating and (self.last is None or not self.last.evaluation):
                self.evaluating = False
            if before != BACKWARD:  # where parts of a forward run again
                self._fed(samples)
        else:
            self.eval_forward = True
            if trained and not training and self.trains:
                if not grad:
                    self.evaluating = True
                elif self.stepped and self.unused is None and not self.evaluating:
                    self.unused, self.syncs_then = self.acc.copy(), self.now.syncs
        if self.marks is not None and not self.evaluating:
            self.marks.work(self.acc[DATA_WAIT], self.acc[TRANSFER])
        return before

    def forward_done(self, before: int) -> None:
        """The forward that `forward` began has returned or raised."""
        if before == BACK:
            before = self.back.pop()
        self._switch(LOSS if before == OTHER else before)
        if self.phase == LOSS and not self.evaluating:
            self.no_loss = self.acc[LOSS]
        if self.evaluating:
            self.tail = self.mark, self.acc.copy()
            if self.marks is not None:
                self.marks.evaluated()
        elif (marks := self.marks) is not None:  # the clock's first error takes it away
            marks.part(OTHER)
            if not self.any_optimizer:
                marks.launched()

    def backward(self) -> int:
        """A backward pass begins; returns the phase to switch back to."""
        if not self.stepped and self.own is not False:
            self._own_backward(self.asked)
        before = self._switch(BACKWARD)
        self.learned, self.unused, self.no_loss, self.gathers = True, None, None, True
        if self.evaluating:
            self._learn_after_all()
        if self.marks is not None:
            self.marks.part(BACKWARD)
        return OTHER if before == LOSS else before

    def gradient(self) -> int:
        """As `backward`, for gradients that are handed out: forces in an evaluation are made so, nothing is learned."""
        before = self._switch(BACKWARD)
        self.unused = self.no_loss = None
        if self.marks is not None and not self.evaluating:
            self.marks.part(BACKWARD)
        return OTHER if before == LOSS else before

    def zeroing(self) -> int:
        """Gradients are set to zero; returns the phase to switch back to."""
        before = self._switch(OPTIMIZER)
        self.clears, self.gathers = True, False
        if self.owes:
            if self.marks is not None:
                self.marks.stepped_later()
            self._own_step()
        if self.unused is not None:
            self._unused()
        if self.evaluating and (self.last is None or not self.last.evaluation):
            self.evaluating = False
        return OTHER if before == LOSS else before

    def optimizer(self, key: int) -> int:
        """Optimizer `key` is about to step."""
        self.own = self.owes = self.gathers = False
        if not self.started:
            self.begin()
        before = self._switch(OPTIMIZER)
        if self.no_loss is not None:
            self._not_a_loss()
        self.learned = True
        if self.evaluating:
            self._learn_after_all()
        alone = key in self.stepped and not self.asked
        if alone or (key in self.stepped and key == self.stepped[0]):
            # The same optimizer again, and nothing was pulled in between: the step ended where the last one stepped.
            rest = [now - then for now, then in zip(self.acc, self.end_acc, strict=True)]
            self._close(self.end_ns, self.end_acc)
            self.acc = rest
        if self.marks is not None:
            self.marks.part(OPTIMIZER)
        before = OTHER if before == LOSS else before
        return self.steady.step_ended(None, before, key) if alone else before

    def optimizer_done(self, key: int, before: int) -> None:
        """Optimizer `key` has stepped."""
        self._switch(before)
        if not self.any_optimizer:
            self.any_optimizer = self.trains = True
            self._merge_held()
        if key not in self.stepped:
            self.stepped.append(key)
        self.end_ns, self.end_acc = self.mark, self.acc.copy()
        self._settle()
        if self.marks is not None:
            self.marks.stepped(self.acc[DATA_WAIT], self.acc[TRANSFER])

    def copying(self) -> None:
        """A tensor is about to be copied to the device, and the host will not wait for that."""
        if self.marks is not None and not self.evaluating:
            self.marks.copying()

    def copied(self, nbytes: int, pageable: bool, ns: int) -> None:
        """A tensor was copied to the device: `ns` of the running phase belong to transfer."""
        if self.marks is not None and not self.evaluating:
            self.marks.copied()
        if not self.evaluating:
            self.now.transfers += 1
            self.now.transfer_bytes += nbytes
            self.now.pageable += pageable
        self._carve(TRANSFER, ns)

    # ---- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Closes the last step where its optimizer stepped, and adds an evaluation that came after it to its row.

        What else the cell did afterwards is no part of a step.
        """
        self.cpu_due = self.step_begin
        if self.no_loss is not None:
            self._not_a_loss()
        if self.unused is not None:
            self._unused()
        if self.stepped:
            rest = [now - then for now, then in zip(self.acc, self.end_acc, strict=True)]
            tail = self.tail
            self._close(self.end_ns, self.end_acc)
            self.acc, self.tail = rest, tail
            if tail is not None:
                self.tail = tail[0], [now - then for now, then in zip(tail[1], self.end_acc, strict=True)]
        elif self.own and self.owes:
            self._own_step()
        elif not self.any_optimizer and self.now.batches:
            self._close_batch(self.mark)
        self._release()
        self.table.finish()
        if self.tail is not None and self.trains and self.step_count and self.tail[0] > self.step_begin:
            end, acc = self.tail
            self.table.extend(self._stretch(end, acc, TRAINING).row(self.began, self.sync_measured))
        if self.windows is not None:
            self.windows.end()
        elif self.marks is not None:
            self.marks.read()
