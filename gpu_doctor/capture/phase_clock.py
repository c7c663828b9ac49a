"""Adds the time between two events to the phase that the training thread was in, in the open span.

`step_clock.py` decides later which step or evaluation a span belongs to. Copies, waits for the device, costly calls,
our own work, marks of the device and stack samples are assigned to phases and spans here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from gpu_doctor.capture import events
from gpu_doctor.capture.device_marks import DeviceMarks
from gpu_doctor.capture.events import CODES, Event
from gpu_doctor.capture.found import Copied, Place, PlacedSample, StackSample
from gpu_doctor.capture.gpu.clock import Put
from gpu_doctor.capture.open_step import OpenStep
from gpu_doctor.capture.sources import Source
from gpu_doctor.capture.spans import Span
from gpu_doctor.recording.steps import EVALUATION, LOSS, OPTIMIZER, OTHER, OURS, SYNC, TRANSFER

Handler: TypeAlias = Callable[[int, Any], None]
"""Function that handles one kind of event; its arguments are the event's time, in ns, and the event's argument."""


class PhaseClock:
    """Keeps track of the phase that the loop is in. Times are integer ns of the host clock."""

    def __init__(self, began: int, event_ns: int) -> None:
        """Starts the clock of a run; see `StepClock` for the arguments."""
        self.event_ns = event_ns
        self.own_ns = 0
        """Time spent in our own work so far, in ns."""
        self.started = False
        """True once the loop has begun."""
        self.step_count = 0
        """Number of steps that have ended."""
        self.device = DeviceMarks()
        self.open = OpenStep(began)
        self.copies: list[Copied] = []
        """Copies since the last call of `StepClock.found`."""
        self.stack_samples: list[PlacedSample] = []
        """Stack samples, with their phases, since the last call of `StepClock.found`."""
        self._phases = [OTHER]
        """Phases that the thread is in, outermost first."""
        self._stepping: list[int] = []
        """Depths of `_phases` at which steps of optimizers are running."""
        self._cpu: int | None = None
        """Last reading of the CPU clock, in ns."""
        self._cpu_mark: int | None = None
        """Reading of the CPU clock at the end of the last step, in ns."""
        self._handle: list[Handler] = [_nothing] * CODES

    def _clear(self, now: int) -> None:
        """Resets everything that is known of the loop, at its start or when it starts over."""
        self.started = False
        self._mark = self._begin = now
        self.open.clear(now)
        self.device.clear()
        # since the last request
        self._last: Source | None = None
        """The iterator that got the last request."""
        self._blind = False
        """True if no gradients were recorded at the request."""
        self._fetched = self._forwarded = self._eval_forward = self._learned = False
        """Flags since the last request: the batch came (`_fetched`), a training forward (`_forwarded`), another forward
        (`_eval_forward`), a backward or an optimizer's step (`_learned`) ran."""
        self._no_loss: tuple[Span, int] | None = None
        """Span at the end of the last forward, and its ns in LOSS by then; None once a backward came."""
        self._undecided: list[PlacedSample] = []
        """Stack samples since then: they show the loss if a backward follows, else the loop's own code."""

    @property
    def now(self) -> int:
        """Time of the newest event that was folded, in ns."""
        return self._mark

    # ---- events in --------------------------------------------------------------------------------------------------

    def fold(self, noted: Iterable[Event], stack_samples: list[StackSample] | None = None) -> None:
        """Handles events in order; steps that have ended are then in `steps`, other findings in the other lists.

        Args:
            noted: events that follow those of the last call, in order.
            stack_samples: samples, in order; those older than the last event are assigned and removed.
        """
        phases, handle, mark, event_ns, step = self._phases, self._handle, self._mark, self.event_ns, self.open
        total = 0
        for code, now, arg in noted:
            if stack_samples and stack_samples[0].begin_ns < now:
                self._place_stack_samples(stack_samples, now, _own_since(code, arg, now))
            took = now - mark
            own = event_ns if event_ns < took else took
            total += own
            ns = step.span.ns
            ns[phases[-1]] += took - own
            ns[OURS] += own
            self._mark = mark = now
            handle[code](now, arg)
        self.own_ns += total

    def _place_stack_samples(self, stack_samples: list[StackSample], now: int, ours: int) -> None:
        """Assigns stack samples that began before an event to the phase that the event ends, and removes them.

        Args:
            stack_samples: samples, in order.
            now: time of the event, in ns.
            ours: time from which our own work ran, in ns.
        """
        phase = EVALUATION if self.open.span.evaluation else self._phases[-1]
        used = self._learned or self._forwarded or self._eval_forward
        feeding = phase == OTHER and self._fetched and not used
        done = 0
        for sample in stack_samples:
            if sample.begin_ns >= now:
                break
            done += 1
            if self.started:
                # A sample that was reported late may begin before events that were folded already.
                whole = self._mark <= sample.begin_ns and sample.end_ns <= ours
                placed = PlacedSample(phase if whole else -1, whole and feeding, self.step_count == 0, sample.seen)
                undecided = whole and phase == LOSS and self._no_loss is not None
                (self._undecided if undecided else self.stack_samples).append(placed)
        del stack_samples[:done]

    def _assign_undecided(self, phase: int) -> None:
        """Assigns the stack samples since the last forward to this phase."""
        if self._undecided:
            self.stack_samples += [sample._replace(phase=phase) for sample in self._undecided]
            self._undecided.clear()

    def _loss_was_other(self) -> None:
        """Moves the time after the last forward from LOSS to OTHER: no backward came before the next forward or batch.

        It was spent in the environment of a rollout or in the decoding of a prediction, for example.
        """
        assert self._no_loss is not None
        (span, before), self._no_loss = self._no_loss, None
        span.ns[OTHER] += span.ns[LOSS] - before
        span.ns[LOSS] = before
        self._assign_undecided(OTHER)

    def _cut(self, evaluation: bool) -> None:
        """Starts another span; `evaluation`: it belongs to an evaluation."""
        self.open.cut(self._mark, evaluation)

    # ---- copies, waits and others -----------------------------------------------------------------------------------

    def _enter(self, now: int, phase: int) -> None:
        """Enters a phase; OTHER inside an optimizer's step is a closure."""
        if phase == OTHER and self._phases[-1] == OPTIMIZER and self._stepping:
            self.open.span.closures += 1
        self._phases.append(phase)

    def _leave(self, now: int, arg: None) -> None:
        """Leaves the innermost phase."""
        if len(self._phases) > 1:
            self._phases.pop()

    def _copying(self, now: int, arg: None) -> None:
        """Handles the start of a copy to a device."""
        self._phases.append(TRANSFER)
        self._came(now, arg, events.COPYING)

    def _copied(self, now: int, copy: tuple[int, bool, Any] | None) -> None:
        """Handles the end of a copy to a device; `copy`: bytes, pageable memory, details, or None if it failed."""
        self._leave(now, None)
        span = self.open.span
        if copy is None or span.evaluation:
            return
        nbytes, pageable, _ = copy
        span.transfers += 1
        span.transfer_bytes += nbytes
        span.pageable += pageable
        self._came(now, copy, events.COPIED)

    def _waiting(self, now: int, arg: None) -> None:
        """Handles the start of a wait for the device."""
        self._phases.append(SYNC)

    def _synced(self, now: int, arg: None) -> None:
        """Handles the end of a wait for the device, and counts it if it is no evaluation's."""
        self._leave(now, arg)
        if not self.open.span.evaluation:
            self.open.span.syncs += 1

    def _came(self, now: int, arg: Any, code: int = events.CAME) -> None:
        """Records a copy, or where a batch lies, with the place in the loop; evaluations are left out."""
        if not self.open.span.evaluation:
            last = self._last
            place = Place(self.step_count, *((0, 0) if last is None else (last.number, last.delivered)))
            self.copies.append(Copied(code, now, arg, place))

    def _costly(self, now: int, call: tuple[str, Any, int, float]) -> None:
        """Adds a costly call to the sums of its kind and place in the span, see `Span.calls`."""
        kind, place, ns, nbytes = call
        span = self.open.span
        if span.calls is None:
            span.calls = {}
        sums = span.calls.setdefault((kind, place), [0.0, 0.0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += ns
        sums[2] += ns if self._phases[-1] == OTHER and not span.evaluation else 0
        sums[3] += nbytes

    def _ours(self, now: int, since: int) -> None:
        """Moves the time since `since` (ns) from the phase to our own work."""
        more = max(now - since - self.event_ns, 0)  # `fold` has taken an event's part out already
        self.open.span.ns[self._phases[-1]] -= more
        self.open.span.ns[OURS] += more
        self.own_ns += more

    def _paused(self, now: int, arg: tuple[int, int]) -> None:
        """Starts the step that has just begun after a trial's wait instead, and takes the wait's CPU time out of it.

        Args:
            now: end of the wait, in ns.
            arg: start of the wait and the CPU time that it used, in ns.
        """
        since, cpu_ns = arg
        own = min(self.event_ns, now - since)  # the part of the wait that `fold` has counted as ours
        self.open.span.ns[OURS] -= own
        self.own_ns -= own
        self.open.span.ns[self._phases[-1]] -= now - since - own
        self.open.span.begin += now - since
        self._begin += now - since
        if self._cpu_mark is not None:
            self._cpu_mark += cpu_ns

    def read_cpu(self, cpu_ns: int) -> None:
        """Stores the process' CPU time by now, in ns; the next step that ends gets what was used until here."""
        self._cpu = cpu_ns

    def _marked(self, now: int, arg: tuple[int, Put, int]) -> None:
        """Adds a mark to the span; the time that placing the mark took is our own work."""
        spent = max(arg[1].spent_ns - self.event_ns, 0)
        self.open.span.ns[self._phases[-1]] -= spent  # the next event adds this time to the phase
        self.open.span.ns[OURS] += spent
        self.own_ns += spent
        self.device.put(self.open.span, *arg)


def _own_since(code: int, arg: Any, now: int) -> int:
    """Returns the time, in ns, from which on our own work ran until an event; `now` if only the loop ran."""
    if code == events.OURS:
        return int(arg)
    return int(arg[0]) if code == events.PAUSED else now


def _nothing(now: int, arg: Any) -> None:
    """Does nothing: the handler of codes that only marks carry."""
