"""The step clock: turns the events that the taps recorded into one row per training step.

A step begins when the loop requests its batch and ends at the first request after an `optimizer.step()`. A loop that
uses no loader ends its steps at the optimizer's step itself. A loop without an optimizer has one step per batch. All
wall-clock between the loop's first event and its last is counted once, in the phase that ran.

The module is pure: no torch, no thread, no clock, no call to the outside. Events, which carry numbers and keys, go in;
steps come out, and they are the same however the events are cut into blocks. `docs/how-it-works.md` draws the state.
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
    """Decides which spans form a step and which an evaluation. Times are integer ns of the host clock."""

    def __init__(self, began: int, sync_measured: bool = False, event_ns: int = 0) -> None:
        """Starts the clock of a run.

        Args:
            began: start of the run, in ns of the host clock.
            sync_measured: True if waits for a device are recorded; otherwise `sync_s` is NaN.
            event_ns: time that recording one event takes on the training thread, in ns (see `cost.EventPrice`).
        """
        super().__init__(began, event_ns)
        self.began, self.sync_measured = began, sync_measured
        self.any_optimizer = False
        """True once an optimizer has stepped, or a step of a loop that updates its parameters by hand has ended."""
        self.trains = False
        """True once `any_optimizer` is, or once batches with a backward turned out to be steps of their own."""
        self.sources = Sources()
        self.evaluation_edge_ns = 0
        """Data wait at the start and end of evaluation passes, in ns: workers start, the first batch, workers stop."""
        self.steps: list[Step] = []
        """Steps that ended since the last call of `found`."""
        self.losses: list[tuple[int, int]] = []
        """Step and number of each stored loss since the last call of `found`."""
        self._requests: list[Source] = []
        """Iterators whose `next` is running, outermost first."""
        self._manual = ManualUpdates()
        self._real: list[Handler] = self._handlers()
        self._handle[:] = self._real
        self._clear(began)

    def _clear(self, now: int) -> None:
        """Resets everything that is known of the loop, at its start or when it starts over."""
        super()._clear(now)
        for code in STARTS:
            self._handle[code] = self._starting(code)
        self._opened_at = self.open.span, 0
        """The span in which `iter(loader)` began, and the data wait counted in it by then, in ns."""
        self._opening_span: Span | None = None
        """The span in which `iter(loader)` ran, while it may still turn out to start an evaluation."""
        self._stepped_before: list[int] = []
        """Ids of the optimizers that stepped in the step before the open one."""
        # since an optimizer last stepped
        self._input_module = 0
        """Id of the module whose input samples are counted, see `OpenStep.forward_span`."""
        self._gathers = False
        """True after a backward whose gradients were neither used nor cleared: the next forward is of the same step."""
        # since the last request
        self._last_samples = 0.0
        """Samples of the batch that came last."""
        self._zipped: list[Source] = []
        """Iterators that gave one batch each in this step before the last iterator: loaders in a `zip`."""
        self._same_source = False
        """True if the last two requests went to the same iterator: a plain pass, no `zip`."""
        self._prefetched = 0
        """Batches that were fetched ahead, besides the last one, and not used yet."""
        # before the first optimizer step
        self._held: Held | None = Held()
        """Batches held back until their role is known; None once no more are held back."""
        self._seems_inference = False
        """True once more batches passed than we hold back, and none was trained on."""
        self._manual.step_pending = False

    def found(self) -> Found:
        """Returns everything found since the last call, and empties the lists."""
        found = Found(self.steps, self.losses, self.copies, self.stack_samples, self.sources.roles)
        self.steps, self.losses, self.copies, self.stack_samples, self.sources.roles = [], [], [], [], []
        return found

    def _handlers(self) -> list[Handler]:
        """Returns the handler of each event code."""
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
        """Ends the open step at `end` with its first `count` spans; later spans belong to the next step."""
        requested, self._stepped_before = self.open.requested, self.open.stepped
        self._emit(self.open.take(count), end, TRAINING, requested, self.open.epoch, self._cpu)

    def _emit(self, spans: list[Span], end: int, kind: float, requested: bool, epoch: int, cpu: int | None) -> None:
        """Appends a finished step, with its row, marks, costly calls and last loss, to `steps` and `losses`."""
        begin, before, loss = self._begin, self._cpu_mark, None
        cpu_ns = _NAN if cpu is None or before is None else cpu - before
        values = row(spans, begin - self.began, end - self.began, kind, requested, cpu_ns, epoch, self.sync_measured)
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
        marks = self.device.take_step(spans) if self.device.events else None
        self.steps.append(Step(values, end, marks, calls))

    def finish(self) -> list[Span]:
        """Closes the last step, if its optimizer has stepped: the loop is over.

        Returns:
            The spans of an evaluation after the last step, which belong to its row. Whatever else the cell did
            afterwards is no part of a step.
        """
        if self._no_loss is not None:
            self._loss_was_other()
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
        # Time in the newest span came after the last event.
        last = max((i for i, span in enumerate(self.open.spans[:-2], 1) if span.evaluation), default=0)
        return self.open.spans[:last] if self.trains and self.step_count else []

    def tail(self, spans: list[Span]) -> list[float]:
        """Returns the row of the spans that `finish` returned, in the order of `steps.STEP_COLUMNS`."""
        end = spans[-1].begin + sum(spans[-1].ns)
        return row(spans, self._begin - self.began, end - self.began, TRAINING, False, 0, 0, self.sync_measured)

    # ---- batches ----------------------------------------------------------------------------------------------------

    def _next(self, now: int, pulled: Pulled, blind: bool = False) -> None:
        """Handles a request for a batch: decides about the last batch, and ends the step if the request ends one.

        Args:
            now: time of the request, in ns.
            pulled: the iterator's number and its loader's key.
            blind: True if no gradients are recorded at the request.
        """
        phases, source = self._phases, self.sources.of(pulled, now)
        if phases[-1] == LOSS:
            phases[-1] = OTHER
        if self._no_loss is not None:
            self._loss_was_other()
        if self.open.unused is not None:
            self._settle_unused()
        last, ended = self._last, bool(self.open.stepped)
        if self._fetched and last is not None:
            self._classify_last_batch(last, source)
        if ended:
            self._close(now, len(self.open.spans))
        elif (
            not self.any_optimizer
            and not self._stepping  # a closure may go through the data: all its batches are the step's
            # A first evaluation, before any training, requests its batches without gradients.
            and (source is self.open.lead or self._eval_forward or self._learned or (self._blind and not blind))
            and self.open.batches()
        ):
            self._close_batch()
        if self.trains and blind and not source.learned:
            self.sources.evaluates(source)
        if source.evaluation:
            self.open.gather_evaluation(self.device)
        else:
            self.open.requested = True
        self._same_source = last is source
        self._last, self._blind = source, blind
        used = self._learned or self._forwarded or self._eval_forward
        if self._same_source and self._fetched and self.any_optimizer and not (ended or used):
            # Accelerate fetches one batch ahead, to know which batch is the last: the role that the next batch reveals
            # holds for this one too.
            self._prefetched += 1
        else:
            begun = not source.delivered and self.open.spans[-1:] == [self._opening_span]
            self._prefetched, self.open.at_request = 0, len(self.open.spans) - begun
        self._learned = self._forwarded = self._eval_forward = self._fetched = False
        if len(self.open.spans) > MOST_SPANS:
            self.open.put_together(self.device)
        self.open.cut(now, source.evaluation)
        phases.append(DATA_WAIT)
        self._requests.append(source)

    def _classify_last_batch(self, last: Source, source: Source) -> None:
        """Decides what the last batch, of `last`, was used for, when `source` gets the next request.

        It was trained on, evaluated, fetched at the end of a pass and never used, or one part of a `zip` of loaders.
        """
        if self._learned:
            self._learned_from(last)
            return
        idle = self._eval_forward or (last is source and self._forwarded and not last.learned)
        # Forwards that record gradients in training mode belong to an evaluation only if the same iterator is requested
        # again without a backward, and no batch of its loader was ever trained on: else the loop may be summing losses.
        # Without an optimizer, batches with gradients and batches with predictions alone are all steps of the loop.
        if idle and self.trains and not last.evaluation and (self.any_optimizer or not last.learned):
            self.sources.evaluates(last, not last.learned)
            self.evaluation_edge_ns += self.open.was_evaluation(last, self._prefetched)
        if last is not source and last.loader is source.loader and not source.delivered:
            self._drop_lookahead_batch(last)
        if last is not source and not self._same_source and last.delivered > 1 and not last.evaluation:
            self._zipped.append(last)

    def _learned_from(self, last: Source) -> None:
        """Marks the last iterator, and those zipped with it, as trained on."""
        for source in (last, *self._zipped):
            self.sources.trains(source)
        self._zipped.clear()

    def _drop_lookahead_batch(self, source: Source) -> None:
        """Takes a batch that the loop fetched and never used, at the end of a pass, out of the step.

        Such a batch is no part of a step; the pass that follows is another epoch.
        """
        if self.any_optimizer and not self._forwarded and not self._eval_forward:
            self.open.uncount(source)

    def _batch(self, now: int, samples: float) -> None:
        """Handles a batch that has come, and counts its samples in the step if it is no evaluation's."""
        source = self._request_done()
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

    def _request_done(self) -> Source | None:
        """Ends the innermost request; returns its iterator, or None if the request itself was not recorded."""
        if not self._requests:
            return None
        if len(self._phases) > 1:
            self._phases.pop()
        return self._requests.pop()

    def _exhausted(self, now: int, arg: None) -> None:
        """Handles the end of a pass over a loader."""
        if self._request_done() is None:
            return
        span = self.open.span
        if span.evaluation:
            self.evaluation_edge_ns += span.ns[DATA_WAIT]
            self._cut(False)
        else:
            span.edge_ns = span.ns[DATA_WAIT]  # workers that are not persistent end here, and are joined
        self._last, self._fetched = None, False
        self._zipped.clear()
        # Batches held back are no accumulation if nothing was trained on them.
        if self._held is None:
            if self._seems_inference and not self.any_optimizer:
                self._held, self._seems_inference = Held(), False
        elif self._held.own_pass():
            self._release()
            self._held = Held()

    def _opening(self, now: int, opened_by: tuple[bool, str | None]) -> None:
        """Handles the start of `iter(loader)`: enters the phase, and stores where the wait began, for `_opened`.

        A loader that is no evaluation's also ends the running evaluation.

        Args:
            now: time of the event, in ns.
            opened_by: True if no gradients are recorded, and the loader's key; None if it is not known yet.
        """
        blind, key = opened_by
        evaluation = blind or self.sources.role(key) == EVALUATED
        # Lightning counts a loader's batches and never requests past its end: the next loader ends the evaluation.
        if not evaluation:
            self._cut(False)
        self._opening_span = None if evaluation else self.open.span
        self._opened_at = self.open.span, self.open.span.ns[DATA_WAIT]
        self._phases.append(EVALUATION if evaluation and self.trains else DATA_WAIT)

    def _opened(self, now: int, pulled: Pulled | None) -> None:
        """Handles the end of `iter(loader)`: counts its wait as wait at a pass's start, and adds the new iterator.

        The iterator of an evaluation loader is marked as one.
        """
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

    def no_more_requests(self) -> None:
        """Settles, at the loop's end, the role of the last batch, which no further request will settle."""
        if self._fetched and self._learned and self._last is not None:
            self._learned_from(self._last)
        if self._held is not None and not self.any_optimizer:
            for source in self._held.evaluated():
                self.sources.evaluates(source)

    # ---- batches before the first optimizer step --------------------------------------------------------------------

    def _close_batch(self) -> None:
        """Ends a batch before any optimizer step: emits it as a step, or holds it back until its role is known."""
        trains = self._learned or self._forwarded
        batch = Batch(
            spans=self.open.spans,
            end_ns=self._mark,
            kind=TRAINING if self._learned else INFERENCE,
            requested=self.open.requested,
            epoch=self.open.epoch,
            source=self.open.lead,
            evaluation_only=self._eval_forward and not trains,
            blind=self._blind and not trains,
            trains=trains,
            cpu=self._cpu,
        )
        self.open.take(len(batch.spans))
        self._seems_inference = self._seems_inference and not trains
        if self._held is None or (batch.evaluation_only and not self._held.batches):
            self._emit_batch(batch)
        elif self._held.hold(batch):
            self._seems_inference = self._held.own_pass()
            self._release()

    def _emit_batch(self, batch: Batch) -> None:
        """Emits a held batch as a step of its own."""
        self._emit(batch.spans, batch.end_ns, batch.kind, batch.requested, batch.epoch, batch.cpu)

    def _release(self) -> None:
        """Emits the batches held back as steps of their own: the loop has no optimizer."""
        held, self._held = self._held, None
        if held is None:
            return
        self.trains = self.trains or held.trained_on
        for source in held.evaluated():
            self.sources.evaluates(source)
        batches, remaining, passes = held.released()
        self.open.epoch -= passes
        for batch in batches:
            self._emit_batch(batch)
        self.open.precede(remaining)

    def _merge_held(self) -> None:
        """Puts the batches held back at the start of the first step: they were its gradient accumulation."""
        held, self._held = self._held, None
        if held is not None and held.batches:
            self.open.requested = True
            self.open.precede(held.merged(self._last))

    # ---- model and optimizer ----------------------------------------------------------------------------------------

    def _forward(self, training: bool, grad: bool, trained: bool) -> Handler:
        """Returns the handler of a forward that begins; see `events.call_code` for the arguments."""
        learns, phase = training and grad, NO_GRAD if training and not grad else FORWARD

        def begins(now: int, fed: tuple[float, int] | None) -> None:
            """Settles what the forward decides (loss, manual step, evaluation), counts its samples, enters the phase.

            `fed`: number of samples of the input, and id of the module; None if they were not read.
            """
            if self._no_loss is not None:
                self._loss_was_other()
            if self._manual.ends_at_forward(grad):
                self._manual_step_ends(len(self.open.spans))
            if learns:
                self._forwarded = True
                if self.open.unused is not None:
                    self._settle_unused()
                if self.open.span.evaluation:
                    self._train_again()
                if self._phases[-1] != BACKWARD:  # in a backward, parts of a forward may run again (checkpointing)
                    self._count_forward_samples(fed)
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
        """Handles the end of a forward: what follows counts as loss until something else is seen."""
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
        """Makes the forwards since the step an evaluation: no backward followed them, they only lacked `no_grad`."""
        first, self.open.unused, self._no_loss = self.open.unused, None, None
        self._assign_undecided(EVALUATION)
        for span in self.open.spans[first:]:
            span.evaluation = True
        self._cut(False)

    def _train_again(self) -> None:
        """Ends an evaluation that used no loader: training goes on."""
        if self._last is None or not self._last.evaluation:
            self._cut(False)

    def _learn_after_all(self) -> None:
        """Counts the last batch in the step after all: it was taken for an evaluation's, and is trained on."""
        last = self._last
        self._cut(False)
        if self._fetched and last is not None and last.evaluation and last.delivered == 1:
            self.sources.evaluates(last, False)
            self.open.count(last, self._last_samples)

    def _count_forward_samples(self, fed: tuple[float, int] | None) -> None:
        """Counts the samples of a training forward in the step, or adds them where the step accumulates gradients.

        Args:
            fed: the samples of the input and the id of the module, None if unknown.
        """
        samples, module = fed or (_NAN, 0)
        step = self.open
        if step.forward_span is None:
            if samples == samples:
                step.forward_span, self._input_module = step.span, module
                step.span.forward_samples = samples
        elif self._gathers and samples == samples and module == self._input_module:
            step.forward_span.forward_samples += samples
        self._gathers = False

    def _gradient(self, now: int, loss: int | None) -> None:
        """Handles the start of a backward: the batch is trained on; `loss` is the number of its stored loss."""
        phases, manual = self._phases, self._manual
        if manual.by_hand and not self.open.stepped:
            if manual.ends_at_backward():
                self._manual_step_ends(self.open.manual_end)
            manual.step_pending = not (self.open.requested or self.open.span.evaluation)
        if phases[-1] == LOSS:
            phases[-1] = OTHER
        phases.append(BACKWARD)
        self._learned, self.open.unused, self._no_loss, self._gathers = True, None, None, True
        self._assign_undecided(LOSS)
        if self.open.span.evaluation:
            self._learn_after_all()
        if self.open.span.loss is None:
            self.open.span.loss = loss

    def _differentiate(self, now: int, arg: None) -> None:
        """Handles gradients that the caller gets (forces in an evaluation, say): as `_gradient`, but no training."""
        if self._phases[-1] == LOSS:
            self._phases[-1] = OTHER
        self._phases.append(BACKWARD)
        self.open.unused = self._no_loss = None
        self._assign_undecided(LOSS)

    def _backed(self, now: int, arg: None) -> None:
        """Handles the end of a backward, where a step of a loop that updates by hand may end."""
        self._leave(now, arg)
        if self._manual.step_pending:
            self.open.manual_end = len(self.open.spans)
            self._cut(self.open.span.evaluation)

    def _zero(self, now: int, arg: None) -> None:
        """Handles the start of clearing gradients: settles what is pending, and enters the optimizer's phase.

        It ends the pending step of a loop that updates by hand, decides about unused forwards, and ends an evaluation.
        """
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
        """Handles the start of an optimizer's step; `key` is the optimizer's id."""
        self._manual.set_by_hand(by_hand=False)
        self._gathers = False
        if self._no_loss is not None:
            self._loss_was_other()
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
        """True if this optimizer's step belongs to a new step, so the open one ended with its last optimizer's step.

        That is so in two cases. The same optimizer steps again, with no batch requested in between. Or another one
        steps in a loop without a loader, after all optimizers of the step before have stepped (a loop over models).
        """
        stepped, asked = self.open.stepped, self.open.requested
        if key in stepped:
            return not asked or key == stepped[0]
        return self._last is None and stepped == self._stepped_before

    def _optimizer_stepped(self, now: int, key: int) -> None:
        """Handles the end of an optimizer's step: the open step may end here."""
        if self._stepping:
            del self._phases[self._stepping.pop() :]
        if not self.any_optimizer:
            self.any_optimizer = self.trains = True
            self._merge_held()
        if key not in self.open.stepped:
            self.open.stepped.append(key)
        self.open.end_ns, self.open.end, self.open.forward_span = now, len(self.open.spans), None
        self.open.cut(now, False)

    def _abandoned(self, now: int, arg: None) -> None:
        """Handles an optimizer's step that raised: leaves its phases."""
        if self._stepping:
            del self._phases[self._stepping[0] :]
            self._stepping.clear()

    def _updates_by_hand(self, now: int, by_hand: bool) -> None:
        """Handles the finding that the loop updates its parameters by hand, or that an optimizer owns them."""
        if not self.any_optimizer:  # once such steps have ended, only an optimizer's own step revokes it
            self._manual.set_by_hand(by_hand)

    def _manual_step_ends(self, count: int) -> None:
        """Ends a step of a loop that updates its parameters by hand, after its first `count` spans."""
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
        """Returns the handler of an event that starts the loop: it resets the clock, then handles the event."""
        real = self._real[code]

        def first(now: int, arg: Any) -> None:
            self._start(now)
            real(now, arg)

        return first

    def _start(self, now: int) -> None:
        """Starts the loop: whatever the cell did before is no part of a step."""
        phases = self._phases[:]
        self._assign_undecided(OTHER)
        self._clear(now)
        self._phases[:] = phases
        self._handle[:] = self._real
        self.started, self._cpu_mark = True, self._cpu

    def _restart(self, now: int, arg: None) -> None:
        """Starts over with another training thread, after ending a step whose optimizer has stepped."""
        if self.open.stepped:
            self._close(self.open.end_ns, self.open.end)
        self._phases[:] = [OTHER]
        self._requests, self._stepping = [], []
        self._start(now)
