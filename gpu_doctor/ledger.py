"""Where the training thread's time goes: one running account of phases, closed into a row at every step's end.

The thread is always in exactly one phase. `switch` bills the time since the last change to the phase that ends, so the
parts of a step sum to its wall-clock by construction and nothing is counted twice. A step begins when the loop asks for
its batch and ends when it asks for the next one after an `optimizer.step()`; where nothing is pulled from a loader, it
ends at the optimizer step itself. A loop without an optimizer has a step per batch.

Only the training thread writes here. Nothing in this file reads a tensor, takes a lock, or waits for a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gpu_doctor.devicemarks import StepMarks
from gpu_doctor.phases import (
    BACKWARD,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    PHASE_COUNT,
    SYNC,
    TRANSFER,
)
from gpu_doctor.stepcounts import Counts, row_of
from gpu_doctor.steps import INFERENCE, TRAINING
from gpu_doctor.steptable import StepTable

HELD_BATCHES: Final = 64
"""Batches kept back at the begin of a run: they are one accumulated step if an optimizer steps within so many."""
HELD_NS: Final = 3_000_000_000


class Pull:
    """One iterator over a loader, as the ledger knows it."""

    __slots__ = ("delivered", "evaluation", "learned")

    def __init__(self) -> None:
        self.delivered = 0
        self.evaluation = False
        self.learned = False
        """A backward or an optimizer step followed one of its batches: the loop trains from it."""


class Ledger:
    """The account of one run. All times are integer nanoseconds of the injected host clock."""

    def __init__(
        self,
        table: StepTable,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu_clock: Callable[[], int] = time.process_time_ns,
        sync_measured: bool = False,
    ) -> None:
        """`sync_measured`: whether waits for a device are tapped; if not, `sync_s` is NaN, not 0."""
        self.table, self.clock, self.cpu_clock, self.sync_measured = table, clock, cpu_clock, sync_measured
        self.marks: StepMarks | None = None
        self.began = self.mark = self.step_begin = clock()
        self.cpu_mark = cpu_clock()
        self.acc = [0] * PHASE_COUNT
        self.phase = OTHER
        self.evaluating = False
        self.started = False
        self.events = 0
        self.step_count = 0
        self.on_step: Callable[[int], None] | None = None
        """Called with the clock's time at every step's end, on the training thread."""
        # this step so far
        self.stepped: list[int] = []
        self.asked = False
        self.lead: Pull | None = None
        self.counts = Counts()
        """Up to the last optimizer step in this step."""
        self.now = Counts()
        """Since then: it belongs to the next step if the same optimizer steps again and nothing is pulled."""
        self.epoch = -1
        # since the last batch
        self.last: Pull | None = None
        self.acc_at_ask: list[int] = self.acc
        self.last_samples = 0.0
        self.learned = self.eval_forward = self.fetched = False
        # the end of the last optimizer step, where a step ends that nothing is pulled for
        self.end_ns = 0
        self.end_acc: list[int] = []
        # before the first optimizer step
        self.any_optimizer = False
        self.held: list[list[float]] | None = []
        self.held_since = 0

    # ---- phases -------------------------------------------------------------------------------------------------

    def switch(self, phase: int) -> int:
        """Ends the phase that the thread is in and begins another; returns the one that ended."""
        now = self.clock()
        before = self.phase
        self.acc[EVALUATION if self.evaluating else before] += now - self.mark
        self.mark = now
        self.phase = phase
        self.events += 1
        return before

    def carve(self, phase: int, ns: int) -> None:
        """Moves `ns` that were just spent inside the running phase to `phase` (copies and waits: leaves of a stack)."""
        if not self.evaluating:
            self.acc[self.phase] -= ns
            self.acc[phase] += ns
        self.events += 1

    def begin(self) -> None:
        """The loop begins at its first event: whatever the cell did before is no part of a step."""
        self.started = True
        self.mark = self.step_begin = self.clock()
        self.cpu_mark = self.cpu_clock()
        self.acc = [0] * PHASE_COUNT
        self.acc_at_ask = self.acc.copy()

    # ---- batches ------------------------------------------------------------------------------------------------

    def ask(self, pull: Pull, grad_enabled: bool) -> int:
        """The loop asks a loader for its next batch; returns the phase to go back to."""
        if not self.started:
            self.begin()
        before = self.switch(DATA_WAIT)
        now = self.mark
        if self.fetched and self.last is not None:
            self._judge(self.last)
        if self.stepped:
            self._settle()
            self._close(now, self.acc)
            self.acc = [0] * PHASE_COUNT
        elif not self.any_optimizer and self.now.batches and (pull is self.lead or self.eval_forward or self.learned):
            self._close_batch(now)
        if self.any_optimizer and not grad_enabled:
            pull.evaluation = True
        self.evaluating = pull.evaluation
        if not self.evaluating:
            self.asked = True
        self.last = pull
        self.acc_at_ask = self.acc.copy()
        self.learned = self.eval_forward = self.fetched = False
        return OTHER if before == LOSS else before

    def delivered(self, pull: Pull, samples: float, before: int) -> None:
        """The batch that was asked for is here: `samples` in it, NaN if that cannot be read."""
        self.switch(before)
        pull.delivered += 1
        self.fetched = True
        if self.evaluating:
            self.last_samples = 0.0
            return
        if self.lead is None:
            self.lead = pull
        if pull.delivered == 1:
            self.now.edge_ns += self.acc[DATA_WAIT] - self.acc_at_ask[DATA_WAIT]
            if pull is self.lead:
                self.epoch += 1
        self.last_samples = samples if pull is self.lead else 0.0
        self.now.samples += self.last_samples
        self.now.batches += 1

    def ended(self, before: int) -> None:
        """The iterator had no further batch, or failed."""
        self.switch(before)
        self.evaluating = False
        self.last, self.fetched = None, False

    def opening(self, evaluation: bool) -> int:
        """`iter(loader)` begins (worker start); returns the phase to hand to `opened`."""
        if not self.started:
            self.begin()
        return self.switch(EVALUATION if evaluation and self.any_optimizer else DATA_WAIT)

    def opened(self, before: int) -> None:
        """The iterator that `opening` announced is there: an epoch's edge."""
        began, in_loader = self.mark, self.phase == DATA_WAIT
        self.switch(before)
        if in_loader and not self.evaluating:
            self.now.edge_ns += self.mark - began

    def _judge(self, pull: Pull) -> None:
        """Whether the batch before belonged to an evaluation pass: a forward without learning, nothing learned after.

        Its time so far was billed to the phases of a training step; it is moved to `evaluation`.
        """
        if self.learned:
            pull.learned, pull.evaluation = True, False
        elif self.eval_forward and self.any_optimizer and not pull.evaluation:
            pull.evaluation = True
            self._move_to_evaluation(pull)

    def _move_to_evaluation(self, pull: Pull) -> None:
        """Bills all that came since the last ask to `evaluation`; its batch and samples are none of the step's."""
        moved = sum(self.acc) - sum(self.acc_at_ask)
        self.acc[:] = self.acc_at_ask
        self.acc[EVALUATION] += moved
        self.now.samples -= 0.0 if self.last_samples != self.last_samples else self.last_samples
        self.now.batches -= 1
        self.last_samples = 0.0
        if self.lead is pull:
            self.lead = None
            self.epoch -= 1

    # ---- model and optimizer ------------------------------------------------------------------------------------

    def forward(self, training: bool, grad: bool, trained: bool, samples: float) -> int:
        """An outermost module's forward begins; returns the phase to hand to `forward_done`.

        Args:
            training: the module's mode. grad: whether gradients are recorded. trained: whether an optimizer of this
                run owns its parameters. samples: batch dimension of its first tensor argument, NaN if unknown.
        """
        if not self.started:
            self.begin()
        before = self.switch(FORWARD)
        if training and grad:
            self.evaluating = False
            if self.now.forward_samples != self.now.forward_samples:
                self.now.forward_samples = samples
        else:
            self.eval_forward = True
            if trained and not training and not grad and self.any_optimizer:
                self.evaluating = True
        if self.marks is not None and not self.evaluating:
            self.marks.work()
        return before

    def forward_done(self, before: int) -> None:
        """The forward that `forward` began has returned or raised."""
        self.switch(LOSS if before == OTHER else before)

    def backward(self) -> int:
        """A backward pass begins."""
        before = self.switch(BACKWARD)
        self.learned, self.evaluating = True, False
        return OTHER if before == LOSS else before

    def optimizer(self, key: int) -> int:
        """Optimizer `key` is about to step."""
        if not self.started:
            self.begin()
        before = self.switch(OPTIMIZER)
        self.learned, self.evaluating = True, False
        if key in self.stepped and (not self.asked or len(self.stepped) == 1):
            # The same optimizer again, and nothing was pulled in between: the step ended where the last one stepped.
            rest = [now - then for now, then in zip(self.acc, self.end_acc, strict=True)]
            self._close(self.end_ns, self.end_acc)
            self.acc = rest
        return OTHER if before == LOSS else before

    def optimizer_done(self, key: int, before: int) -> None:
        """Optimizer `key` has stepped."""
        self.switch(before)
        if not self.any_optimizer:
            self.any_optimizer = True
            self._merge_held()
        if key not in self.stepped:
            self.stepped.append(key)
        self.end_ns, self.end_acc = self.mark, self.acc.copy()
        self._settle()
        if self.marks is not None:
            self.marks.stepped()

    def copied(self, nbytes: int, pageable: bool, ns: int) -> None:
        """A tensor was copied to the device: `ns` of the running phase belong to transfer."""
        if not self.evaluating:
            self.now.transfers += 1
            self.now.transfer_bytes += nbytes
            self.now.pageable += pageable
        self.carve(TRANSFER, ns)

    # ---- rows ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What was counted so far belongs to the open step, whatever comes."""
        self.counts.add(self.now)
        self.now = Counts()

    def _row(self, now: int, acc: list[int], kind: float) -> list[float]:
        cpu = self.cpu_clock()
        row = row_of(
            (self.step_begin - self.began) * 1e-9,
            (now - self.step_begin) * 1e-9,
            acc,
            self.counts,
            kind=kind,
            cpu_s=(cpu - self.cpu_mark) * 1e-9,
            epoch=self.epoch,
            sync=self.sync_measured,
        )
        self.cpu_mark, self.step_begin = cpu, now
        self.counts = Counts()
        self.stepped, self.asked, self.lead = [], False, None
        self.last_samples = 0.0
        return row

    def _close(self, now: int, acc: list[int], kind: float = TRAINING) -> None:
        self._append(self._row(now, acc, kind), now)

    def _append(self, row: list[float], now: int) -> None:
        number = self.table.append(row)
        self.step_count += 1
        if self.marks is not None:
            self.marks.close(number)
        if self.on_step is not None:
            self.on_step(now)

    def _close_batch(self, now: int) -> None:
        """A batch of a loop in which no optimizer has stepped yet: inference, or the begin of an accumulation."""
        self._settle()
        row = self._row(now, self.acc, INFERENCE)
        self.acc = [0] * PHASE_COUNT
        if self.held is None or not self.learned:
            self._append(row, now)
            return
        if not self.held:
            self.held_since = now
        self.held.append(row)
        if len(self.held) > HELD_BATCHES or now - self.held_since > HELD_NS:
            held, self.held = self.held, None
            for one in held:
                self._append(one, now)

    def _merge_held(self) -> None:
        """The first optimizer step has come: the batches held back were its accumulation."""
        held, self.held = self.held, None
        for row in held or ():
            self.step_begin = min(self.step_begin, self.began + round(row[0] * 1e9))
            self.now.samples += row[4]
            self.now.batches += int(row[5])
            for phase in range(SYNC):
                self.acc[phase] += round(row[6 + phase] * 1e9)
            self.acc[LOSS] += round(row[13] * 1e9)
            self.now.edge_ns += round(row[14] * 1e9)

    def finish(self) -> None:
        """Closes the last step where its optimizer stepped; what the cell did afterwards is no part of it."""
        if self.stepped:
            self._close(self.end_ns, self.end_acc)
        elif not self.any_optimizer and self.now.batches:
            self.switch(OTHER)
            self._close_batch(self.mark)
        for row in self.held or ():
            self._append(row, self.mark)
        self.held = None
        if self.marks is not None:
            self.marks.read()
        self.table.finish()
