"""The running account that the ledger keeps: which phase the thread is in, what the open step has so far, its rows.

The thread is always in exactly one phase. `switch` bills the time since the last change to the phase that ends, so the
parts of a step sum to its wall-clock by construction and nothing is counted twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gpu_doctor.capture.eventnotes import BACK, Pulse
from gpu_doctor.capture.gpu.devicemarks import StepMarks
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.steadysteps import CPU_EVERY_NS, SteadySteps
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.capture.stepcounts import Counts, Held, Pull, Stretch, row
from gpu_doctor.recording.steps import EVALUATION, INFERENCE, LOSS, OTHER, PHASE_COUNT, SYNC, TRAINING

if TYPE_CHECKING:
    from gpu_doctor.capture.ledger import Ledger


class Account:
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
        """Put to the device in this step, None = none are."""
        self.windows: DeviceWindows | None = None
        """Says in which steps they are; without it in all."""
        self.began = clock()
        self.started = self.any_optimizer = False
        self.trains = False
        """An optimizer has stepped, or batches that something was learned from turned out to be steps of their own."""
        self.events = 0
        self.pulse = Pulse()
        self.on_step: Callable[[int], None] | None = None
        """Called with the clock's time at a step's end (of steps that repeat, once a block), on the training thread."""
        self.alone: Callable[[], bool] | None = None
        """Looks for the models of a loop without an optimizer; whether none owns what gets gradients."""
        self.look_at = math.inf
        """The step count at which `on_step` must be called in any case."""
        self.back: list[int] = []
        """Phases to go back to of events that began while they were only noted, outermost first."""
        self.steady = SteadySteps(cast("Ledger", self))
        """Takes the events while steps repeat."""
        self.newest: list[float] = []
        """The row of the step that was closed last."""
        self._clear(self.began)

    def phase_now(self) -> int:
        """The phase that the thread is in; asked on any thread."""
        leaf = self.leaf
        if self.pulse.taking or self.pulse.resting:
            phase = self.steady.phase()
        else:
            phase = EVALUATION if self.evaluating else self.phase
        return phase if leaf is None or phase == EVALUATION else leaf

    @property
    def step_count(self) -> int:
        """Steps that have ended."""
        return self.pulse.count

    def _clear(self, now: int) -> None:
        self.mark = self.step_begin = self.cpu_due = now
        self.cpu_mark = self.cpu_clock()
        self.acc = [0] * PHASE_COUNT
        self.phase = OTHER
        self.evaluating = False
        self.leaf: int | None = None
        """While a copy or a wait runs: the phase that its time will be moved to when it has ended (see `carve`)."""
        # this step so far
        self.stepped: list[int] = []
        self.asked = False
        self.lead: Pull | None = None
        """The pull whose samples count: where several are pulled from in a step, the one that delivers most."""
        self.counts: Counts | None = None
        """Up to the last optimizer step in this step; None = nothing yet."""
        self.now = Counts()
        """Since then: it belongs to the next step if the same optimizer steps again and nothing is pulled."""
        self.epoch = -1
        # since the last batch
        self.last: Pull | None = None
        self.last_samples = 0.0
        self.beside: list[Pull] = []
        """Pulled from once before the last one in the same step: two loaders in a zip."""
        self.again = False
        """The last one was pulled from before it too, with nothing in between: a pass, no zip."""
        self.blind = False
        """It was asked for without gradients being recorded."""
        self.acc_at_ask, self.edge_at_ask, self.syncs_at_ask = self.acc.copy(), 0, 0
        self.ahead, self.samples_ahead = 0, 0.0
        """Batches that were fetched since then before the last one, none of which was used yet, and their samples."""
        self.no_loss: int | None = None
        """What had been billed to LOSS when the last forward ended, until a backward shows that a loss followed it."""
        self.learned = self.forwarded = self.eval_forward = self.fetched = False
        self.unused: list[int] | None = None
        self.syncs_then = 0
        """The account when a trained module was called in evaluation mode, recording gradients, after the step."""
        # the ends of the last optimizer step, where a step ends that nothing is pulled for, and of the last evaluation
        self.end_ns, self.end_acc = now, self.acc.copy()
        self.tail: tuple[int, list[int]] | None = None
        self.held: Held | None = Held()
        """Batches before the first optimizer step; None = not held back any more."""
        self.untaught = False
        """They were too many to be held back, and nothing like training was heard of them."""

    def begin(self) -> None:
        """The loop begins at its first event: whatever the cell did before is no part of a step."""
        self.started = True
        self._clear(self.clock())

    # ---- phases -------------------------------------------------------------------------------------------------

    def _switch(self, phase: int) -> int:
        """Ends the phase that the thread is in and begins another; returns the one that ended."""
        now = self.clock()
        if phase == BACK:
            phase = self.back.pop()
        before = self.phase
        self.acc[EVALUATION if self.evaluating else before] += now - self.mark
        self.mark = now
        self.phase = phase
        self.events += 1
        return before

    switch = _switch
    """What the taps call: it may be noted for later, where the ledger's own calls may not."""

    def _carve(self, phase: int, ns: int) -> None:
        """Moves `ns` that were just spent inside the running phase to `phase` (copies and waits: leaves of a stack)."""
        if not self.evaluating:
            self.acc[self.phase] -= ns
            self.acc[phase] += ns
            if phase == SYNC:
                self.now.syncs += 1
        self.events += 1

    carve = _carve
    """As `switch`."""

    def _not_a_loss(self) -> None:
        """What came after the last forward was no loss: nothing was differentiated before the next forward or batch.

        The environment of a rollout and the decoding of a prediction run there.
        """
        moved, self.no_loss = self.acc[LOSS] - (self.no_loss or 0), None
        self.acc[LOSS] -= moved
        self.acc[OTHER] += moved

    # ---- rows ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What was counted so far belongs to the open step, whatever comes."""
        now = self.now
        if self.counts is None:
            self.counts, self.now = now, Counts()
        elif now.batches or now.edge_ns or now.transfers or now.syncs or now.forward_samples == now.forward_samples:
            self.counts.add(now)
            self.now = Counts()

    def _stretch(self, end: int, acc: list[int], kind: float) -> Stretch:
        """What lies between the last row and `end`; the next step begins there."""
        cpu = self.cpu_mark
        if end >= self.cpu_due:
            cpu, self.cpu_due = self.cpu_clock(), end + CPU_EVERY_NS
        counts = self.counts or Counts()
        done = Stretch(self.step_begin, end, acc, counts, kind, self.asked, self.cpu_mark, cpu, self.epoch)
        self.cpu_mark, self.step_begin = cpu, end
        self.counts, self.stepped, self.asked, self.lead, self.tail = None, [], False, None, None
        return done

    def _close(self, end: int, acc: list[int]) -> None:
        """As `_append(_stretch(...))` for a training step, without an object in between: this is the hot path."""
        cpu, begin = 0, self.step_begin
        if end >= self.cpu_due:
            now = self.cpu_clock()
            cpu, self.cpu_mark, self.cpu_due = now - self.cpu_mark, now, end + CPU_EVERY_NS
        counts = self.counts or Counts()
        done = row(
            begin - self.began, end - begin, acc, counts, TRAINING, self.asked, cpu, self.epoch, self.sync_measured
        )
        self.step_begin = end
        self.counts, self.stepped, self.asked, self.lead, self.tail = None, [], False, None, None
        self._put(done, end)

    def _append(self, done: Stretch) -> None:
        self._put(done.row(self.began, self.sync_measured), done.end)

    def _put(self, done: list[float], end: int) -> None:
        number = self.table.append(done)
        self.newest = done
        self.pulse.count += 1
        if self.marks is not None:
            self.marks.close(number)
        if self.windows is not None:
            self.marks = self.windows.step_ended(end)
        if self.on_step is not None:
            self.on_step(end)

    def _close_batch(self, now: int) -> None:
        """A batch of a loop in which no optimizer has stepped yet: inference, or the begin of an accumulation."""
        self._settle()
        lead, blind = self.lead, self.blind and not self.learned and not self.forwarded
        done = self._stretch(now, self.acc, TRAINING if self.learned else INFERENCE)
        self.acc = [0] * PHASE_COUNT
        evaluated = self.eval_forward and not self.learned and not self.forwarded
        self.untaught = self.untaught and not (self.learned or self.forwarded)
        if self.held is None or (evaluated and not self.held.stretches):
            if self.marks is not None:
                self.marks.stepped()
            self._append(done)
        elif self.held.hold(done, evaluated, self.learned or self.forwarded, lead, blind):
            self.untaught = self.held.own_pass()
            self._release()
            if self.learned and self.alone is not None:
                self.alone()

    def _release(self) -> None:
        """The batches held back are steps of their own: the loop has no optimizer."""
        held, self.held = self.held, None
        if held is None:
            return
        self.trains = self.trains or held.taught
        rows, left, passes = held.rows()
        self.epoch -= passes
        for done in rows:
            self._append(done)
        if left is not None:
            self.acc[EVALUATION] += left.acc[EVALUATION]
            self.step_begin, self.cpu_mark = left.begin, left.cpu_begin
            self.tail = self.tail or (left.end, self.acc.copy())

    def judge_held(self) -> None:
        """Nothing is pulled any more: which loaders were evaluated on is known, where no step was closed until now."""
        if self.held is not None and not self.any_optimizer:
            self.held.judged()

    def _pass_ended(self) -> None:
        """A loader has no further batch: what was held back is no accumulation if nothing like training was heard."""
        if self.held is None:
            if self.untaught and not self.any_optimizer:
                self.held, self.untaught = Held(), False
        elif self.held.own_pass():
            self._release()
            self.held = Held()

    def _merge_held(self) -> None:
        """The first optimizer step has come: the batches held back were its accumulation."""
        held, self.held = self.held, None
        first = held.merge(self.acc, self.now, self.last) if held is not None else None
        if first is not None:
            self.step_begin, self.cpu_mark, self.asked = first.begin, first.cpu_begin, True
