"""Which batches and forwards turn out to be an evaluation's after they were billed to the step."""

from __future__ import annotations

from gpu_doctor.capture.ownupdates import OwnUpdates
from gpu_doctor.capture.stepcounts import Pull
from gpu_doctor.recording.steps import EVALUATION


class Evaluations(OwnUpdates):
    """The part of the ledger that takes an evaluation out of the step it was counted in."""

    evaluation_edge_ns = 0
    """Spent at the edges of evaluation passes: the iterator (worker start), its first batch, its end (they stop)."""

    def _judge(self, pull: Pull, again: bool) -> None:
        """Whether the batch before, of which nothing was learned, belonged to an evaluation pass: there was a forward.

        Forwards that record gradients in training mode are one only if the same iterator is asked again without a
        backward, and no batch of its loader was ever learned from: else the loop may be summing losses.
        """
        idle = self.eval_forward or (again and self.forwarded and not pull.learned)
        if not self.any_optimizer and pull.learned:
            return  # gradients of some batches, predictions of others: all are the loop's steps
        if idle and self.trains and not pull.evaluation:
            pull.evaluation = not pull.learned
            self._move_to_evaluation(pull)

    def asked_no_more(self) -> None:
        """The loop is over: of what was learned since its last ask, no further ask will say that it was."""
        if self.fetched and self.learned and self.last is not None:
            for one in (self.last, *self.beside):
                one.learned, one.evaluation = True, False

    def _heard(self) -> bool:
        """Whether a model was called, or anything learned, since the last ask."""
        return self.learned or self.forwarded or self.eval_forward

    def _ahead(self) -> None:
        """The last batch was not used yet: what is found out about the pass with the next one holds for it too.

        Accelerate fetches a batch more before it hands out the first, which is what tells the last one.
        """
        self.ahead += 1
        self.samples_ahead += self.last_samples if self.last_samples == self.last_samples else 0.0

    def _move_to_evaluation(self, pull: Pull) -> None:
        """Bills all that came since the last ask to `evaluation`; its batch and samples are none of the step's.

        The last ask is the first of those between which no batch was used.
        """
        moved = sum(self.acc) - sum(self.acc_at_ask)
        self.acc[:] = self.acc_at_ask
        self.acc[EVALUATION] += moved
        self.tail = self.mark, self.acc.copy()
        if self.marks is not None:
            self.marks.evaluated_after_all()
        self.now.samples -= self.samples_ahead + (0.0 if self.last_samples != self.last_samples else self.last_samples)
        self.now.batches -= self.ahead + 1
        pull.loader[0] -= self.ahead + 1
        self.evaluation_edge_ns += self.now.edge_ns - self.edge_at_ask
        self.now.edge_ns, self.now.syncs = self.edge_at_ask, min(self.now.syncs, self.syncs_at_ask)
        if self.lead is pull and not self.now.batches:
            self.lead = None
            self.epoch -= pull.delivered == self.ahead + 1

    def _left(self, pull: Pull) -> None:
        """The loop has begun a new pass with a batch of the last one untouched: it pulled one too many to see its end.

        Such a batch is no part of a step; the pass that follows is another epoch. A pass with a single batch may be one
        of two iterators over one loader (`zip(loader, loader)`), and is none.
        """
        untouched = self.any_optimizer and not self.forwarded and not self.eval_forward
        if untouched and self.lead is pull and pull.delivered > 1 and self.now.batches == 1:
            self.lead, self.now.batches, self.now.samples = None, 0, 0.0

    def _unused(self) -> None:
        """Nothing asked for the gradients of the forwards since the step: an evaluation without `no_grad`."""
        then, self.unused, self.no_loss = self.unused or self.acc, None, None
        self.now.syncs = min(self.now.syncs, self.syncs_then)
        moved = sum(self.acc) - sum(then)
        self.acc[:] = then
        self.acc[EVALUATION] += moved
        self.tail = self.mark, self.acc.copy()
        if self.marks is not None:
            self.marks.evaluated_after_all()

    def _learn_after_all(self) -> None:
        """A batch that was taken for one of an evaluation is learned from: it is the step's."""
        self.evaluating = False
        if self.fetched and self.last is not None and self.last.evaluation and self.last.delivered == 1:
            self.last.evaluation = False
            self._count(self.last, self.last_samples)

    def _count(self, pull: Pull, samples: float) -> None:
        """A batch of the open step. Of several loaders in one step only one gives samples: the one that gave most."""
        pull.loader[0] += 1
        if self.lead is None or (pull is not self.lead and pull.loader[0] > self.lead.loader[0]):
            self.lead = pull
            self.now.samples = 0.0
            if self.counts is not None:
                self.counts.samples = 0.0
        elif pull.delivered == 1 < self.lead.delivered and pull.loader is self.lead.loader:
            self.lead = pull  # the next pass goes on with the step that the last one began
        if pull is self.lead:
            self.now.samples += samples
            self.epoch += pull.delivered == 1
        else:
            self.last_samples = 0.0
        self.now.batches += 1
