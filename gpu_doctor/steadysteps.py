"""Steps that repeat: once a loop has found its rhythm, its events are only noted down and accounted for in blocks.

Every event of a loop runs through the ledger, some hundred lines of Python that the training itself pushes out of the
processor's caches: tens of microseconds a step. But most loops do the same thing step after step. Where two steps in a
row had the same events from the same state of the ledger, the third will be accounted for in the same way: which event
ends which phase is known, and only the times differ. So from then on an event is noted with its time, a step's end
compares one list, and a block of steps becomes rows in a few array operations. With the first event that does not fit
(an evaluation, a new epoch, another order) the block is closed, the open step is told to the ledger event by event at
the times that were noted, and the ledger goes on as before.

The formula is not trusted but tried: it is used only if it gives, for the second of the two steps, the row to the last
bit that the ledger has written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpu_doctor.blockrows import COLUMN, BlockRows, no_loss
from gpu_doctor.eventnotes import ASKED, BACK, BEGINS, ENDS, SELDOM, Noted, code_of, is_forward, notes, tell
from gpu_doctor.phases import EVALUATION, OTHER
from gpu_doctor.stepcounts import Pull

if TYPE_CHECKING:
    from gpu_doctor.ledger import Ledger

CPU_EVERY_NS: Final = 1_000_000
"""The CPU clock is a system call (about 1 us): it is read once in so long, for every step that is no shorter."""
BLOCK: Final = 512
"""Steps that are accounted for in one go, at most: that takes some 200 us, however many they are."""
BLOCK_NS: Final = 200_000_000
"""And at least so often: a view asks twice a second."""
MOST_EVENTS: Final = 256
"""A step of more events is not noted down: what is gained a step is lost where one does not fit."""
FIRST_LOOK: Final = 2
"""Steps before the first look for a rhythm; after one that failed or broke off, twice as many as the time before."""
LONGEST_PAUSE: Final = 64

_TIMES: Final = {
    *("mark", "step_begin", "cpu_due", "cpu_mark", "acc", "acc_at_ask", "end_ns", "end_acc", "last_samples"),
    *("events", "evaluation_edge_ns", "now", "counts", "newest", *BEGINS, *ENDS, *SELDOM, *ASKED),
}
"""What of the ledger differs from step to step without changing what an event means."""


class SteadySteps:
    """Watches one ledger for steps that repeat, and takes its events while they do."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.pulse = ledger.pulse
        """`taking`: the ledger's events are noted here, not told to it."""
        self.noted = 0
        """Events that were accounted for in blocks."""
        self._watching = False
        self._pause = self._wait = FIRST_LOOK
        # what a step is made of
        self.notes = Noted()
        """Always the same lists: a wrapper may keep their `append`."""
        self._phases: list[int] = []
        self._state: dict[str, Any] = {}
        self._before: tuple[list[Any], list[int]] | None = None
        self._ended = False
        self._tries = 0
        """Steps at whose end it is tried whether the last rhythm goes on."""
        # the rhythm
        self._pattern: list[Any] = []
        self._rhythm: list[int] = []
        self._known: dict[str, Any] = {}
        """The ledger's state at the begin of its steps."""
        self._rows: BlockRows | None = None
        self._pull: Pull = Pull()
        self._batches = self._forwards = 0
        self._ask_before = OTHER
        self._base = self._counted = 0
        """When the first noted step began, and how many had ended before it."""

    # ---- finding it -------------------------------------------------------------------------------------------------

    def step_ended(self, pull: Pull, before: int) -> int:
        """The ledger has closed a training step at an ask of `pull`; returns what the ask returns, usually `before`."""
        if self._watching:
            self._ended = True  # the watched ask goes on from here
            return before
        if self._tries:
            self._tries -= 1
            if self._resumed(pull, before):
                return BACK
        self._wait -= 1
        if self._wait <= 0:
            self._watch()
        return before

    def phase(self) -> int:
        """The phase that the training thread is in, while events are noted; asked on any thread."""
        at = len(self.notes.codes)
        return self._rhythm[at] if at < len(self._rhythm) else OTHER

    def _snapshot(self) -> dict[str, Any] | None:
        """All that decides what the coming events mean; None where a step has left something open."""
        ledger = self._ledger
        now = ledger.now
        fresh = not (now.batches or now.samples or now.edge_ns or now.transfers)
        if ledger.counts is not None or not fresh or now.forward_samples == now.forward_samples or any(ledger.acc):
            return None
        if ledger.marks is not None or ledger.held is not None or ledger.back or ledger.stepped:
            return None
        kept = ((name, value) for name, value in vars(ledger).items() if name not in _TIMES)
        return {name: value.copy() if isinstance(value, list) else value for name, value in kept}

    def _resumed(self, pull: Pull, before: int) -> bool:
        """Goes on with the rhythm that was broken, if the loop is where that began: an epoch later, by a new iterator.

        It is found out by the first step that does not fit if the loop has changed, as at any other time.
        """
        state, then, old = self._snapshot(), self._known, self._pull
        if self._rows is None or state is None or state.keys() != then.keys():
            return False
        moved = (name for name, value in state.items() if value is not then[name] and value != then[name])
        if not all(name == "epoch" or (then[name] is old and state[name] is pull) for name in moved):
            return False
        self._rows.in_epoch(max(self._ledger.epoch, 0))
        pattern = [
            code if isinstance(code, int) else (pull,) if isinstance(code, tuple) else pull for code in self._pattern
        ]
        self._known = state
        self._hear_the_seldom()
        self._take(pull, before, pattern, self._rhythm)
        return True

    def _watch(self) -> None:
        state = self._snapshot()
        if state is None:
            self._fail()
            return
        self._watching, self._state, self._before, self._ended = True, state, None, False
        self._clear()
        for name in (*BEGINS, *ENDS):
            setattr(self._ledger, name, self._watched(name))
        self._hear_the_seldom()

    def _hear_the_seldom(self) -> None:
        for name in SELDOM:
            setattr(self._ledger, name, self._broken(name))

    def _watched(self, name: str) -> Callable[..., Any]:
        """The ledger's own method, with its event, the phase that it ends and its time noted down."""
        ledger, direct = self._ledger, getattr(type(self._ledger), name)

        def event(*args: Any) -> Any:
            self.notes.codes.append(code_of(name, args))
            self._phases.append(EVALUATION if ledger.evaluating else ledger.phase)
            doubtful = ledger.no_loss is not None
            result = direct(ledger, *args)
            self.notes.times.append(ledger.mark)
            if doubtful and ledger.no_loss is None and name in ("ask", "forward", "optimizer"):
                no_loss(self._phases)
            if name == "delivered":
                self.notes.samples.append(args[1])
            elif name == "ask" and self._ended:
                self._compare(args[0], result)
                if self.pulse.taking:
                    return BACK
            elif len(self.notes.codes) > MOST_EVENTS:
                self._fail()
            if name not in BEGINS or args == (BACK,):
                return None
            ledger.back.append(result)
            return BACK

        return event

    def _broken(self, name: str) -> Callable[..., Any]:
        """An event that no rhythm has: the ledger is told as ever."""
        ledger, direct = self._ledger, getattr(type(self._ledger), name)

        def event(*args: Any) -> Any:
            if self.pulse.taking:
                self.stop()
            else:
                self._fail()
            return direct(ledger, *args)

        return event

    def _compare(self, pull: Pull, before: int) -> None:
        """A watched step has ended: the rhythm is found if it is the same as the one before."""
        self._ended = False
        state = self._snapshot()
        codes, phases = self.notes.codes.copy(), self._phases.copy()
        if state is None or state != self._state or self._foreign(pull):
            self._fail()
            return
        if self._before is None:
            self._before = codes, phases
            self._clear()
            return
        written, batches = np.asarray(self._ledger.newest), len(self.notes.samples)
        rows = BlockRows(phases, written, batches, self._ledger.began)
        if self._before != (codes, phases) or not rows.holds(self.notes.times, self.notes.samples):
            self._fail()
            return
        self._known, self._rows, self._batches = state, rows, batches
        self._take(pull, before, codes, phases)

    def _foreign(self, pull: Pull) -> bool:
        """Whether another iterator than `pull` was asked in the step, or not every ask was answered."""
        asked = [one for one in self.notes.codes if not isinstance(one, int)]
        return any(one is not pull for one in asked) or len(asked) != len(self.notes.samples)

    def _fail(self) -> None:
        """No rhythm: the ledger goes on as it is, and is watched again after a while."""
        self._release()
        self._watching = False
        self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)

    def _release(self) -> None:
        for name in (*BEGINS, *ENDS, *SELDOM, *ASKED):
            vars(self._ledger).pop(name, None)
        self._clear()

    def _clear(self) -> None:
        self.notes.clear()
        self._phases.clear()

    # ---- taking the events ------------------------------------------------------------------------------------------

    def _take(self, pull: Pull, ask_before: int, pattern: list[Any], rhythm: list[int]) -> None:
        """From here on events are noted; the ledger has just been told of the ask that ends a step."""
        ledger = self._ledger
        self._pattern, self._rhythm = pattern, rhythm
        self._forwards = sum(is_forward(code) for code in self._pattern)
        self._pull, self._ask_before, self._counted = pull, ask_before, self.pulse.count
        self._base = ledger.mark
        self._watching = False
        pulse = self.pulse
        pulse.iterator, pulse.pull, pulse.events, pulse.taking = pull.iterator, pull, len(pattern), True
        pulse.pattern = pattern
        self._next_block(ledger.mark)
        self._clear()
        for name, note in notes(self.notes, ledger.clock, len(self._pattern), self.step).items():
            setattr(ledger, name, note)

    def step(self) -> None:
        """An ask after as many events as a step has: a step of the rhythm, or its end."""
        if self.notes.codes != self._pattern:
            self.stop()
            return
        self.notes.codes.clear()
        pulse = self.pulse
        pulse.count += 1
        if pulse.count >= pulse.due_count or self.notes.times[-1] >= pulse.due_ns:
            self.put_down()

    def _next_block(self, now: int) -> None:
        pulse, look_at = self.pulse, self._ledger.look_at
        pulse.due_ns = now + BLOCK_NS
        pulse.due_count = min(pulse.count + BLOCK, look_at if look_at > pulse.count else math.inf)

    def put_down(self) -> None:
        """The whole steps that were noted become rows."""
        ledger, steps, pull = self._ledger, self.pulse.count - self._counted, self._pull
        if not steps or self._rows is None:
            return
        rows, end = self._rows.of(steps, self._base, self.notes.times, self.notes.samples)
        if end >= ledger.cpu_due:
            cpu, ledger.cpu_due = ledger.cpu_clock(), end + CPU_EVERY_NS
            rows[-1, COLUMN["cpu_s"]] = (cpu - ledger.cpu_mark) * 1e-9
            ledger.cpu_mark = cpu
        whole = steps * len(self._pattern)
        ledger.mark = ledger.step_begin = self._base = end
        ledger.events += whole
        self.noted += whole
        pull.loader[0] += steps * self._batches
        ledger.last_samples = self.notes.samples[steps * self._batches - 1]
        del self.notes.times[:whole], self.notes.samples[: steps * self._batches]
        del self.notes.inputs[: steps * self._forwards]
        self._counted = self.pulse.count
        self._next_block(end)
        ledger.table.append_rows(rows)
        if ledger.on_step is not None:
            ledger.on_step(end)

    def stop(self) -> None:
        """The rhythm is broken: the ledger is told of the open step at the times noted, and goes on itself."""
        if not self.pulse.taking:
            return
        self.pulse.taking, self.pulse.pull = False, None
        self.put_down()
        noted = self.notes.taken()
        self._release()
        self._wait = 2 * len(noted.codes) + FIRST_LOOK  # no look while it is told
        tell(self._ledger, noted, self._pull, self._ask_before)
        self._wait = self._pause = self._tries = FIRST_LOOK
