"""The step clock: turns what the taps noted into one row per training step.

A step begins when the loop asks for its batch and ends when it asks for the next one after an `optimizer.step()`; where
nothing is pulled from a loader, it ends at the optimizer's step itself. A loop without an optimizer has a step per
batch. All of the wall-clock between the loop's first event and its last is billed, once, to the phase that ran.

Pure: no torch, no thread, no clock, and nothing outside is called. Events, which carry numbers and keys, go in; steps
come out, and any cut of the events into blocks gives the same steps. The state is drawn in `docs/how-it-works.md`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from gpu_doctor.capture import events
from gpu_doctor.capture.events import CALL, CODES, STARTS
from gpu_doctor.capture.found import Found, Step
from gpu_doctor.capture.held import Batch, Held
from gpu_doctor.capture.manual_updates import ManualUpdates
from gpu_doctor.capture.open_step import MOST_SPANS
from gpu_doctor.capture.phase_clock import Handler, PhaseClock
from gpu_doctor.capture.sources import EVALUATED, Pulled, Source, Sources
from gpu_doctor.capture.spans import Span, row
from gpu_doctor.recording.steps import (
    BACKWARD,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    INFERENCE,
    LOSS,
    NO_GRAD,
    OPTIMIZER,
    OTHER,
    TRAINING,
)

_NAN: Final = float("nan")


class StepClock(PhaseClock):
    """Decides which spans are a step, and which an evaluation. Times are integer ns of the host clock."""

    def __init__(self, began: int, sync_measured: bool = False, event_ns: int = 0) -> None:
        """Begins a run's clock.

        Args:
            began: when the run began.
            sync_measured: waits for a device are noted, else `sync_s` is NaN.
            event_ns: what an event takes of the training thread (see `cost.EventPrice`).
        """
        super().__init__(began, event_ns)
        self.began, self.sync_measured = began, sync_measured
        self.any_optimizer = False
        """An optimizer has stepped, or a step of a loop that changes its parameters itself has ended."""
        self.trains = False
        """That, or batches that something was learned from turned out to be steps of their own."""
        self.sources = Sources()
        self.evaluation_edge_ns = 0
        """Spent at the edges of evaluation passes: the iterator (worker start), first batch, end (they stop)."""
        self.steps: list[Step] = []
        """Found since the last look, as are these:"""
        self.losses: list[tuple[int, int]] = []
        self._asking: list[Source] = []
        self._manual = ManualUpdates()
        self._real: list[Handler] = self._handlers()
        self._handle[:] = self._real
        self._clear(began)

    def _clear(self, now: int) -> None:
        """The loop begins, or begins anew: nothing is known of it."""
        super()._clear(now)
        for code in STARTS:
            self._handle[code] = self._starting(code)
        self._opened_at = self.open.span, 0
        """The span in which `iter(loader)` began, and what it had of the wait for data."""
        self._begun: Span | None = None
        """The span of an `iter(loader)` of which nothing tells yet whether an evaluation begins with it."""
        self._stepped_before: list[int] = []
        """The optimizers of the step before the open one."""
        # since an optimizer last stepped
        self._fed_by = 0
        """The module that is fed what is learned from, see `OpenStep.fed_span`."""
        self._gathers = False
        """A backward came since, and gradients were neither used nor cleared: its next forward is of the same step."""
        # since the last ask
        self._last_samples = 0.0
        self._beside: list[Source] = []
        """Pulled from once before the last one in the same step: two loaders in a zip."""
        self._again = False
        """The last one was pulled from before it too, with nothing in between: a pass, no zip."""
        self._ahead = 0
        """Batches fetched ahead besides the last one, none of which was used yet."""
        # before the first optimizer step
        self._held: Held | None = Held()
        """Batches that are held back; None = no more."""
        self._seems_inference = False
        """More batches passed than are held back, and none was trained on."""
        self._manual.step_pending = False

    def found(self) -> Found:
        """What was found since it was last asked; the lists of these names are empty then."""
        found = Found(self.steps, self.losses, self.copies, self.looks, self.sources.roles)
        self.steps, self.losses, self.copies, self.looks, self.sources.roles = [], [], [], [], []
        return found

    def _handlers(self) -> list[Handler]:
        table: dict[int, Handler] = {
            events.NEXT: self._next,
            events.NEXT_BLIND: partial(self._next, blind=True),
            events.BATCH: self._batch,
            events.EXHAUSTED: self._exhausted,
            events.OPENING: self._opening,
            events.OPENED: self._opened,
            events.CALLED: self._called,
            events.GRADIENT: self._gradient,
            events.DIFFERENTIATE: self._differentiate,
            events.BACKED: self._backed,
            events.ZERO: self._zero,
            events.STEP: self._step,
            events.STEPPED: self._optimizer_stepped,
            events.ABANDONED: self._abandoned,
            events.PHASE: self._enter,
            events.DONE: self._leave,
            events.COPYING: self._copying,
            events.COPIED: self._copied,
            events.WAITING: self._waiting,
            events.SYNCED: self._synced,
            events.CAME: self._came,
            events.BATCH_AT: partial(self._came, code=events.BATCH_AT),
            events.COSTLY: self._costly,
            events.OURS: self._ours,
            events.CPU: lambda now, cpu_ns: self.read_cpu(cpu_ns),
            events.BY_HAND: self._updates_by_hand,
            events.RESTART: self._restart,
            events.PAUSED: self._paused,
            events.MARK: self._marked,
        }
        for flags in range(CODES - CALL):
            table[CALL + flags] = self._forward(bool(flags & 1), bool(flags & 2), bool(flags & 4))
        return [table.get(code, before) for code, before in enumerate(self._handle)]

    # ---- steps out --------------------------------------------------------------------------------------------------

    def _close(self, end: int, count: int) -> None:
        """The step ends at `end`, with the first `count` of its spans; what follows is the next one's."""
        asked, self._stepped_before = self.open.asked, self.open.stepped
        self._put(self.open.take(count), end, TRAINING, asked, self.open.epoch, self._cpu)

    def _put(self, spans: list[Span], end: int, kind: float, asked: bool, epoch: int, cpu: int | None) -> None:
        """A step has ended."""
        begin, before, loss = self._begin, self._cpu_mark, None
        cpu_ns = _NAN if cpu is None or before is None else cpu - before
        values = row(spans, begin - self.began, end - self.began, kind, asked, cpu_ns, epoch, self.sync_measured)
        self._begin, self._cpu_mark = end, cpu
        calls = []
        for span in reversed(spans):
            if span.calls is not None:
                calls.append(span.calls)
            if span.loss is not None:
                loss = span.loss
        if loss is not None:
            self.losses.append((self.step_count, loss))
        self.step_count += 1
        marks = self.device.of_step(spans) if self.device.events else None
        self.steps.append(Step(values, end, marks, calls))

    def finish(self) -> list[Span]:
        """The loop is over: closes the last step where its optimizer stepped.

        Returns:
            The spans of an evaluation that came after it, which belong to its row; what else the cell did afterwards
            is no part of a step.
        """
        if self._no_loss is not None:
            self._not_a_loss()
        if self.open.unused is not None:
            self._settle_unused()
        if self.open.stepped:
            self._close(self.open.end_ns, self.open.end)
        elif self._manual.step_pending and self.any_optimizer:
            self._manual_step_ends(len(self.open.spans))
        elif not self.any_optimizer and self.open.batches():
            self._close_batch()
        self._release()
        self._cut(False)
        # What lies in the span before came after all that was heard.
        last = max((i for i, span in enumerate(self.open.spans[:-2], 1) if span.evaluation), default=0)
        return self.open.spans[:last] if self.trains and self.step_count else []

    def tail(self, spans: list[Span]) -> list[float]:
        """The values of what `finish` returned, in the order of `steps.STEP_COLUMNS`."""
        end = spans[-1].begin + sum(spans[-1].ns)
        return row(spans, self._begin - self.began, end - self.began, TRAINING, False, 0, 0, self.sync_measured)

    # ---- batches ----------------------------------------------------------------------------------------------------

    def _next(self, now: int, pulled: Pulled, blind: bool = False) -> None:
        phases, source = self._phases, self.sources.of(pulled, now)
        if phases[-1] == LOSS:
            phases[-1] = OTHER
        if self._no_loss is not None:
            self._not_a_loss()
        if self.open.unused is not None:
            self._settle_unused()
        last, ended = self._last, bool(self.open.stepped)
        if self._fetched and last is not None:
            self._judge(last, source)
        if ended:
            self._close(now, len(self.open.spans))
        elif (
            not self.any_optimizer
            and not self._stepping  # a closure that goes over the data: all of its batches are the step's
            # A first look at held-out data, before any training, is asked for without gradients and then left.
            and (source is self.open.lead or self._eval_forward or self._learned or (self._blind and not blind))
            and self.open.batches()
        ):
            self._close_batch()
        if self.trains and blind and not source.learned:
            self.sources.evaluates(source)
        if source.evaluation:
            self.open.gather_evaluation(self.device)
        else:
            self.open.asked = True
        self._again = last is source
        self._last, self._blind = source, blind
        heard = self._learned or self._forwarded or self._eval_forward
        if self._again and self._fetched and self.any_optimizer and not (ended or heard):
            # Accelerate fetches a batch more before it hands out the first, which is what tells the last one: what is
            # found out about the pass with the next one holds for this one too.
            self._ahead += 1
        else:
            begun = not source.delivered and self.open.spans[-1:] == [self._begun]
            self._ahead, self.open.at_ask = 0, len(self.open.spans) - begun
        self._learned = self._forwarded = self._eval_forward = self._fetched = False
        if len(self.open.spans) > MOST_SPANS:
            self.open.put_together(self.device)
        self.open.cut(now, source.evaluation)
        phases.append(DATA_WAIT)
        self._asking.append(source)

    def _judge(self, last: Source, source: Source) -> None:
        """What the batch before, of `last`, was used for; now `source` is asked."""
        if self._learned:
            self._learned_from(last)
            return
        idle = self._eval_forward or (last is source and self._forwarded and not last.learned)
        # Forwards that record gradients in training mode are an evaluation's only if the same iterator is asked again
        # without a backward, and no batch of its loader was ever learned from: else the loop may be summing losses.
        # Without an optimizer, gradients of some batches and predictions of others are all the loop's steps.
        if idle and self.trains and not last.evaluation and (self.any_optimizer or not last.learned):
            self.sources.evaluates(last, not last.learned)
            self.evaluation_edge_ns += self.open.was_evaluation(last, self._ahead)
        if last is not source and last.loader is source.loader and not source.delivered:
            self._one_too_many(last)
        if last is not source and not self._again and last.delivered > 1 and not last.evaluation:
            self._beside.append(last)

    def _learned_from(self, last: Source) -> None:
        for one in (last, *self._beside):
            self.sources.trains(one)
        self._beside.clear()

    def _one_too_many(self, source: Source) -> None:
        """The loop has begun a new pass with a batch of the last one untouched: it pulled one more to see its end.

        Such a batch is no part of a step; the pass that follows is another epoch. A pass with a single batch may be one
        of two iterators over one loader (`zip(loader, loader)`), and is none.
        """
        if self.any_optimizer and not self._forwarded and not self._eval_forward:
            self.open.uncount(source)

    def _batch(self, now: int, samples: float) -> None:
        source = self._answered()
        if source is None:
            return
        self.sources.delivers(source)
        self._fetched, self._last_samples = True, samples
        span = self.open.span
        if span.evaluation:
            if source.delivered == 1:
                self.evaluation_edge_ns += span.ns[DATA_WAIT]
            return
        if source.delivered == 1:
            span.edge_ns = span.ns[DATA_WAIT]
        self.open.count(source, samples)

    def _answered(self) -> Source | None:
        """Whoever was asked last has answered; None where the ask itself was lost."""
        if not self._asking:
            return None
        if len(self._phases) > 1:
            self._phases.pop()
        return self._asking.pop()

    def _exhausted(self, now: int, arg: None) -> None:
        if self._answered() is None:
            return
        span = self.open.span
        if span.evaluation:
            self.evaluation_edge_ns += span.ns[DATA_WAIT]
            self._cut(False)
        else:
            span.edge_ns = span.ns[DATA_WAIT]  # workers that do not stay are ended there, and joined
        self._last, self._fetched = None, False
        self._beside.clear()
        # What was held back is no accumulation if nothing like training was heard.
        if self._held is None:
            if self._seems_inference and not self.any_optimizer:
                self._held, self._seems_inference = Held(), False
        elif self._held.own_pass():
            self._release()
            self._held = Held()

    def _opening(self, now: int, made: tuple[bool, str | None]) -> None:
        blind, key = made
        evaluation = blind or self.sources.role(key) == EVALUATED
        # Who counts a loader's batches (Lightning) never asks past its end: the next loader ends the evaluation.
        if not evaluation:
            self._cut(False)
        self._begun = None if evaluation else self.open.span
        self._opened_at = self.open.span, self.open.span.ns[DATA_WAIT]
        self._phases.append(EVALUATION if evaluation and self.trains else DATA_WAIT)

    def _opened(self, now: int, pulled: Pulled | None) -> None:
        if len(self._phases) > 1 and self._phases.pop() == DATA_WAIT:
            opened, before = self._opened_at
            waited = self.open.span.ns[DATA_WAIT] - (before if opened is self.open.span else 0)
            if self.open.span.evaluation:
                self.evaluation_edge_ns += waited
            else:
                self.open.span.edge_ns += waited
        if pulled is not None:
            source = self.sources.of(pulled, now)
            self.sources.evaluates(source, self.trains and source.loader.role == EVALUATED)

    def asked_no_more(self) -> None:
        """The loop is over: of what was learned since its last ask, no further ask will say that it was."""
        if self._fetched and self._learned and self._last is not None:
            self._learned_from(self._last)
        if self._held is not None and not self.any_optimizer:
            for source in self._held.evaluated():
                self.sources.evaluates(source)

    # ---- batches before the first optimizer step --------------------------------------------------------------------

    def _close_batch(self) -> None:
        """A batch of a loop in which no optimizer has stepped yet: inference, or the begin of an accumulation."""
        heard = self._learned or self._forwarded
        batch = Batch(
            spans=self.open.spans,
            end_ns=self._mark,
            kind=TRAINING if self._learned else INFERENCE,
            asked=self.open.asked,
            epoch=self.open.epoch,
            source=self.open.lead,
            evaluation_only=self._eval_forward and not heard,
            blind=self._blind and not heard,
            trains=heard,
            cpu=self._cpu,
        )
        self.open.take(len(batch.spans))
        self._seems_inference = self._seems_inference and not heard
        if self._held is None or (batch.evaluation_only and not self._held.batches):
            self._put_batch(batch)
        elif self._held.hold(batch):
            self._seems_inference = self._held.own_pass()
            self._release()

    def _put_batch(self, one: Batch) -> None:
        """A batch turned out to be a step of its own."""
        self._put(one.spans, one.end_ns, one.kind, one.asked, one.epoch, one.cpu)

    def _release(self) -> None:
        """The batches held back are steps of their own: the loop has no optimizer."""
        held, self._held = self._held, None
        if held is None:
            return
        self.trains = self.trains or held.taught
        for source in held.evaluated():
            self.sources.evaluates(source)
        batches, left, passes = held.released()
        self.open.epoch -= passes
        for one in batches:
            self._put_batch(one)
        self.open.precede(left)

    def _merge_held(self) -> None:
        """The first optimizer step has come: the batches held back were its accumulation."""
        held, self._held = self._held, None
        if held is not None and held.batches:
            self.open.asked = True
            self.open.precede(held.merged(self._last))

    # ---- model and optimizer ----------------------------------------------------------------------------------------

    def _forward(self, training: bool, grad: bool, trained: bool) -> Handler:
        """What a forward means; see `events.call_code`."""
        learns, phase = training and grad, NO_GRAD if training and not grad else FORWARD

        def begins(now: int, fed: tuple[float, int] | None) -> None:
            if self._no_loss is not None:
                self._not_a_loss()
            if self._manual.ends_at_forward(grad):
                self._manual_step_ends(len(self.open.spans))
            if learns:
                self._forwarded = True
                if self.open.unused is not None:
                    self._settle_unused()
                if self.open.span.evaluation:
                    self._train_again()
                if self._phases[-1] != BACKWARD:  # where parts of a forward run again
                    self._fed(fed)
            else:
                self._eval_forward = True
                if trained and not training and self.trains and not self.open.span.evaluation:
                    if not grad:
                        self._cut(True)
                    elif self.open.stepped and self.open.unused is None:
                        self.open.unused = len(self.open.spans)
                        self._cut(False)
            self._phases.append(phase)

        return begins

    def _called(self, now: int, arg: None) -> None:
        phases = self._phases
        if len(phases) > 1:
            phases.pop()
        if phases[-1] == OTHER:
            phases[-1] = LOSS
        if self.open.span.evaluation:
            self.open.gather_evaluation(self.device)
            self._cut(True)
        elif phases[-1] == LOSS:
            self._no_loss = self.open.span, self.open.span.ns[LOSS]

    def _settle_unused(self) -> None:
        """Nothing asked for the gradients of the forwards since the step: an evaluation without `no_grad`."""
        first, self.open.unused, self._no_loss = self.open.unused, None, None
        self._decided(EVALUATION)
        for span in self.open.spans[first:]:
            span.evaluation = True
        self._cut(False)

    def _train_again(self) -> None:
        """An evaluation of a tensor at hand, without a loader, ends where training goes on."""
        if self._last is None or not self._last.evaluation:
            self._cut(False)

    def _learn_after_all(self) -> None:
        """A batch that was taken for one of an evaluation is learned from: it is the step's."""
        last = self._last
        self._cut(False)
        if self._fetched and last is not None and last.evaluation and last.delivered == 1:
            self.sources.evaluates(last, False)
            self.open.count(last, self._last_samples)

    def _fed(self, fed: tuple[float, int] | None) -> None:
        """A forward that is learned from begins: its samples are the step's, or more of them (accumulation)."""
        samples, module = fed or (_NAN, 0)
        step = self.open
        if step.fed_span is None:
            if samples == samples:
                step.fed_span, self._fed_by = step.span, module
                step.span.forward_samples = samples
        elif self._gathers and samples == samples and module == self._fed_by:
            step.fed_span.forward_samples += samples
        self._gathers = False

    def _gradient(self, now: int, loss: int | None) -> None:
        phases, manual = self._phases, self._manual
        if manual.by_hand and not self.open.stepped:
            if manual.ends_at_backward():
                self._manual_step_ends(self.open.manual_end)
            manual.step_pending = not (self.open.asked or self.open.span.evaluation)
        if phases[-1] == LOSS:
            phases[-1] = OTHER
        phases.append(BACKWARD)
        self._learned, self.open.unused, self._no_loss, self._gathers = True, None, None, True
        self._decided(LOSS)
        if self.open.span.evaluation:
            self._learn_after_all()
        if self.open.span.loss is None:
            self.open.span.loss = loss

    def _differentiate(self, now: int, arg: None) -> None:
        """As `_gradient`, for gradients that are handed out: forces in an evaluation, say. Nothing is learned."""
        if self._phases[-1] == LOSS:
            self._phases[-1] = OTHER
        self._phases.append(BACKWARD)
        self.open.unused = self._no_loss = None
        self._decided(LOSS)

    def _backed(self, now: int, arg: None) -> None:
        self._leave(now, arg)
        if self._manual.step_pending:
            self.open.manual_end = len(self.open.spans)
            self._cut(self.open.span.evaluation)

    def _zero(self, now: int, arg: None) -> None:
        self._manual.zeroes, self._gathers = True, False
        if self._manual.step_pending:
            self._manual_step_ends(len(self.open.spans))
        if self.open.unused is not None:
            self._settle_unused()
        if self.open.span.evaluation:
            self._train_again()
        if self._phases[-1] == LOSS:
            self._phases[-1] = OTHER
        self._phases.append(OPTIMIZER)

    def _step(self, now: int, key: int) -> None:
        self._manual.told(by_hand=False)
        self._gathers = False
        if self._no_loss is not None:
            self._not_a_loss()
        self._learned = True
        if self.open.span.evaluation:
            self._learn_after_all()
        if self.open.stepped and self._begins_a_step(key):
            self._close(self.open.end_ns, self.open.end)
        phases = self._phases
        if phases[-1] == LOSS:
            phases[-1] = OTHER
        self._stepping.append(len(phases))
        phases.append(OPTIMIZER)

    def _begins_a_step(self, key: int) -> bool:
        """Whether an optimizer steps that is not the open step's: that one ended where its last optimizer had stepped.

        It is the same optimizer again, with nothing pulled in between. Or it is another one after a step that is whole,
        in a loop that pulls from no loader: all have stepped that did in the step before, and it was not among them (a
        loop over models).
        """
        stepped, asked = self.open.stepped, self.open.asked
        if key in stepped:
            return not asked or key == stepped[0]
        return self._last is None and stepped == self._stepped_before

    def _optimizer_stepped(self, now: int, key: int) -> None:
        if self._stepping:
            del self._phases[self._stepping.pop() :]
        if not self.any_optimizer:
            self.any_optimizer = self.trains = True
            self._merge_held()
        if key not in self.open.stepped:
            self.open.stepped.append(key)
        self.open.end_ns, self.open.end, self.open.fed_span = now, len(self.open.spans), None
        self.open.cut(now, False)

    def _abandoned(self, now: int, arg: None) -> None:
        if self._stepping:
            del self._phases[self._stepping[0] :]
            self._stepping.clear()

    def _updates_by_hand(self, now: int, by_hand: bool) -> None:
        if not self.any_optimizer:  # once such steps have ended, only an optimizer's own step says otherwise
            self._manual.told(by_hand)

    def _manual_step_ends(self, count: int) -> None:
        """A step of a loop that changes its parameters itself ends after so many spans."""
        self._manual.step_pending = False
        if not count:
            return
        if self._held is not None:
            before = len(self.open.spans)
            self._release()
            count += len(self.open.spans) - before
        self.any_optimizer = self.trains = True  # from now on a pass without gradients is an evaluation
        end = self.open.spans[count].begin if count < len(self.open.spans) else self._mark
        self._close(end, count)
        if not self.open.spans:
            self._cut(False)

    def _starting(self, code: int) -> Handler:
        real = self._real[code]

        def first(now: int, arg: Any) -> None:
            self._start(now)
            real(now, arg)

        return first

    def _start(self, now: int) -> None:
        """Whatever came before is no part of a step."""
        phases = self._phases[:]
        self._decided(OTHER)
        self._clear(now)
        self._phases[:] = phases
        self._handle[:] = self._real
        self.started, self._cpu_mark = True, self._cpu

    def _restart(self, now: int, arg: None) -> None:
        if self.open.stepped:
            self._close(self.open.end_ns, self.open.end)
        self._phases[:] = [OTHER]
        self._asking, self._stepping = [], []
        self._start(now)
