"""Bills the time between two events to the phase that the training thread was in, and to the span that is open.

What a span belongs to is decided later, by `step_clock.py`. Copies, waits, costly calls, our own work, marks of the
device and looks of the line sampler find their place here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from gpu_doctor.capture import events
from gpu_doctor.capture.device_marks import DeviceMarks
from gpu_doctor.capture.events import CODES, Event
from gpu_doctor.capture.found import Copied, Look, Place, Seen
from gpu_doctor.capture.gpu.clock import Put
from gpu_doctor.capture.open_step import OpenStep
from gpu_doctor.capture.sources import Source
from gpu_doctor.capture.spans import Span
from gpu_doctor.recording.steps import EVALUATION, LOSS, OPTIMIZER, OTHER, OURS, SYNC, TRANSFER

Handler: TypeAlias = Callable[[int, Any], None]
"""What an event means: it is given the event's time and argument."""


class PhaseClock:
    """Where the loop is. Times are integer ns of the host clock."""

    def __init__(self, began: int, event_ns: int) -> None:
        """See `StepClock`."""
        self.event_ns = event_ns
        self.own_ns = 0
        """All that was our own work so far."""
        self.started = False
        """The loop has begun."""
        self.step_count = 0
        """Steps that have ended."""
        self.device = DeviceMarks()
        self.open = OpenStep(began)
        self.copies: list[Copied] = []
        """Found since the last look, as are these:"""
        self.looks: list[Seen] = []
        self._phases = [OTHER]
        """What the thread is in, outermost first."""
        self._stepping: list[int] = []
        """Depths of `_phases` at which optimizers step."""
        self._cpu: int | None = None
        """The last reading of the CPU clock, and the one at the end of the last step."""
        self._cpu_mark: int | None = None
        self._handle: list[Handler] = [_nothing] * CODES

    def _clear(self, now: int) -> None:
        """The loop begins, or begins anew: nothing is known of it."""
        self.started = False
        self._mark = self._begin = now
        self.open.clear(now)
        self.device.clear()
        # since the last ask
        self._last: Source | None = None
        """Who was asked."""
        self._blind = False
        """No gradients were recorded at the ask."""
        self._fetched = self._forwarded = self._eval_forward = self._learned = False
        """The batch came; a forward that may learn from it ran, or one that may not; a backward or optimizer's step."""
        self._no_loss: tuple[Span, int] | None = None
        """What had been billed to LOSS, and in which span, when the last forward ended, until a backward follows."""
        self._undecided: list[Seen] = []
        """What was seen since then: of a loss if a backward follows, else of the loop's own code."""

    @property
    def now(self) -> int:
        """When the newest event that was folded was."""
        return self._mark

    # ---- events in --------------------------------------------------------------------------------------------------

    def fold(self, noted: Iterable[Event], looks: list[Look] | None = None) -> None:
        """Takes events in; what is whole by now lies in `steps` and the other lists.

        Args:
            noted: events, in their order, that follow those of the last call.
            looks: of the line sampler, in their order; those that the events reach are taken out.
        """
        phases, handle, mark, event_ns, step = self._phases, self._handle, self._mark, self.event_ns, self.open
        total = 0
        for code, now, arg in noted:
            if looks and looks[0].begin_ns < now:
                self._place_looks(looks, now, _own_since(code, arg, now))
            took = now - mark
            own = event_ns if event_ns < took else took
            total += own
            ns = step.span.ns
            ns[phases[-1]] += took - own
            ns[OURS] += own
            self._mark = mark = now
            handle[code](now, arg)
        self.own_ns += total

    def _place_looks(self, looks: list[Look], now: int, ours: int) -> None:
        """The looks that begin before an event at `now` fell into the phase that it ends; from `ours` on we worked."""
        phase = EVALUATION if self.open.span.evaluation else self._phases[-1]
        heard = self._learned or self._forwarded or self._eval_forward
        feeding = phase == OTHER and self._fetched and not heard
        done = 0
        for look in looks:
            if look.begin_ns >= now:
                break
            done += 1
            if self.started:
                # One that was handed in late may begin before events that were folded already.
                whole = self._mark <= look.begin_ns and look.end_ns <= ours
                seen = Seen(phase if whole else -1, whole and feeding, self.step_count == 0, look.seen)
                undecided = whole and phase == LOSS and self._no_loss is not None
                (self._undecided if undecided else self.looks).append(seen)
        del looks[:done]

    def _decided(self, phase: int) -> None:
        """What was seen since the last forward fell into this phase."""
        if self._undecided:
            self.looks += [one._replace(phase=phase) for one in self._undecided]
            self._undecided.clear()

    def _not_a_loss(self) -> None:
        """What came after the last forward was no loss: nothing was differentiated before the next forward or batch.

        The environment of a rollout and the decoding of a prediction run there.
        """
        assert self._no_loss is not None
        (span, before), self._no_loss = self._no_loss, None
        span.ns[OTHER] += span.ns[LOSS] - before
        span.ns[LOSS] = before
        self._decided(OTHER)

    def _cut(self, evaluation: bool) -> None:
        """Another span begins."""
        self.open.cut(self._mark, evaluation)

    # ---- copies, waits and others -----------------------------------------------------------------------------------

    def _enter(self, now: int, phase: int) -> None:
        if phase == OTHER and self._phases[-1] == OPTIMIZER and self._stepping:
            self.open.span.closures += 1
        self._phases.append(phase)

    def _leave(self, now: int, arg: None) -> None:
        if len(self._phases) > 1:
            self._phases.pop()

    def _copying(self, now: int, arg: None) -> None:
        self._phases.append(TRANSFER)
        self._came(now, arg, events.COPYING)

    def _copied(self, now: int, copy: tuple[int, bool, Any] | None) -> None:
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
        self._phases.append(SYNC)

    def _synced(self, now: int, arg: None) -> None:
        self._leave(now, arg)
        if not self.open.span.evaluation:
            self.open.span.syncs += 1

    def _came(self, now: int, arg: Any, code: int = events.CAME) -> None:
        if not self.open.span.evaluation:
            last = self._last
            place = Place(self.step_count, *((0, 0) if last is None else (last.number, last.delivered)))
            self.copies.append(Copied(code, now, arg, place))

    def _costly(self, now: int, call: tuple[str, Any, int, float]) -> None:
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
        """What ran since `since` was our own work."""
        more = max(now - since - self.event_ns, 0)  # `fold` has taken an event's part out already
        self.open.span.ns[self._phases[-1]] -= more
        self.open.span.ns[OURS] += more
        self.own_ns += more

    def _paused(self, now: int, arg: tuple[int, int]) -> None:
        """The step that has just begun begins when the wait is over, with its CPU time."""
        since, cpu_ns = arg
        own = min(self.event_ns, now - since)  # so much of it `fold` has billed to us
        self.open.span.ns[OURS] -= own
        self.own_ns -= own
        self.open.span.ns[self._phases[-1]] -= now - since - own
        self.open.span.begin += now - since
        self._begin += now - since
        if self._cpu_mark is not None:
            self._cpu_mark += cpu_ns

    def read_cpu(self, cpu_ns: int) -> None:
        """The CPU clock of the process, in ns, as of now: the next step that ends has what it used until here."""
        self._cpu = cpu_ns

    def _marked(self, now: int, arg: tuple[int, Put, int]) -> None:
        spent = max(arg[1].spent_ns - self.event_ns, 0)
        self.open.span.ns[self._phases[-1]] -= spent  # the rest of it is billed there with the next event
        self.open.span.ns[OURS] += spent
        self.own_ns += spent
        self.device.put(self.open.span, *arg)


def _own_since(code: int, arg: Any, now: int) -> int:
    """From when on the time until an event was our own; `now` where it was the loop's."""
    if code == events.OURS:
        return int(arg)
    return int(arg[0]) if code == events.PAUSED else now


def _nothing(now: int, arg: Any) -> None:
    """Of codes that marks alone carry."""
