"""Steps that repeat: once a loop has found its rhythm, its events are only noted down and accounted for in blocks.

Every event of a loop runs through the ledger, some hundred lines of Python that the training itself pushes out of the
processor's caches: tens of microseconds a step. But most loops do the same thing step after step. Where two steps in a
row had the same events from the same state of the ledger, the third will be accounted for in the same way: which event
ends which phase is known, and only the times differ. So from then on an event is noted with its time, a step's end
compares one list, and a block of steps becomes rows in a few array operations. With the first event that does not fit
(an evaluation, a new epoch, another order) the block is closed, the open step is told to the ledger event by event at
the times that were noted, and the ledger goes on as before.

Where even notes are too dear, most steps are noted by their batches alone (see `rests`).

The formula is not trusted but tried: it is used only if it gives, for the second of the two steps, the row to the last
bit that the ledger has written.
"""

from __future__ import annotations

import math
from array import array
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor.capture.alonerows import AloneRows
from gpu_doctor.capture.blockrows import COLUMN, BlockRows, Rows
from gpu_doctor.capture.eventnotes import BACK, DELIVERED, LEAF, is_copy, is_forward, notes
from gpu_doctor.capture.rests import REST_NS
from gpu_doctor.capture.retelling import tell
from gpu_doctor.capture.rhythm import FIRST_LOOK, Rhythm
from gpu_doctor.capture.stepcounts import Pull
from gpu_doctor.recording.steps import DATA_WAIT, OTHER

if TYPE_CHECKING:
    from gpu_doctor.capture.ledger import Ledger

CPU_EVERY_NS: Final = 1_000_000
"""The CPU clock is a system call (about 1 us): it is read once in so long, for every step that is no shorter."""
BLOCK: Final = 512
"""Steps that are accounted for in one go, at most: that takes some 200 us, however many they are."""
BLOCK_NS: Final = 200_000_000
"""And at least so often: a view asks twice a second."""


class SteadySteps(Rhythm):
    """Watches one ledger for steps that repeat, and takes its events while they do."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.noted = 0
        """Events that were accounted for in blocks,"""
        self.spent_ns = 0
        """and what that took, ns of real time: not the loop's, which a test may set."""
        self._pattern: list[Any] = []
        """Codes of the events that are noted of a step: all, or in a rest those of its batches."""
        self._forwards = self._copies = 0
        self._pulls: list[Pull] = []
        """Whose batches a step has, one by one."""
        self._ask_before, self._key = OTHER, 0
        self._base = self._counted = self._taken = 0
        """When the first noted step began, how many had ended before it, and before the rhythm was taken up."""

    def phase(self) -> int:
        """The phase that the training thread is in, while events are noted; asked on any thread.

        In a rest that is the wait for a batch or `other`, which stands for all that is not heard.
        """
        if self.pulse.resting:
            return OTHER if len(self.notes.times) % 2 else DATA_WAIT
        at = len(self.notes.codes)
        return self._ends[at] if at < len(self._ends) else OTHER

    def _take(self, pull: Pull, before: int, pattern: list[Any], ends: list[int], key: int) -> None:
        """From here on events are noted; the ledger has just been told of the event that ends a step."""
        self._full, self._ends = pattern, ends
        self._pulls = [code for code in pattern if not isinstance(code, int)]
        self._pull, self._ask_before, self._key = pull, before, key
        self.pulse.alone = self._alone is not None
        self._counted = self._taken = self.pulse.count
        self._base = self._ledger.mark
        self._watching = False
        if self.pulse.alone:
            self._listen()
            return
        self.pulse.iterator, self.pulse.pull = pull.iterator, pull
        if self.rests.left() > 0 and self.rests.due(before):
            self._rest()
        else:
            self._listen()

    def _listen(self) -> None:
        """All taps are heard from the next event on; a step has just ended."""
        self.pulse.taking, self.pulse.resting = True, False
        self._note(self._full)
        clock, unusual = self._ledger.clock, self._alarms["carve"]
        names = notes(self.notes, clock, len(self._full), self.step, unusual, self.pulse.alone)
        vars(self._ledger).update(names)
        self._next_block(self._base)

    def _rest(self) -> None:
        """Most taps stand down; a step has just ended."""
        asks = [code for code in self._full if not isinstance(code, int)]
        self.pulse.batches = self.pulse.left = len(asks)
        self.pulse.taking, self.pulse.resting = False, True
        self._note([code for ask in asks for code in (DELIVERED, ask)])
        vars(self._ledger).update({**self._alarms, "ask": self._ask, "delivered": self._delivered})
        if self.rests.off():
            self._next_block(self._base)
        else:
            self._listen()

    def _note(self, pattern: list[Any]) -> None:
        """Steps of these codes are noted."""
        self._pattern = pattern
        self._forwards, self._copies = sum(map(is_forward, pattern)), sum(map(is_copy, pattern))
        self.pulse.pattern, self.pulse.events = pattern, len(pattern)
        self._clear()

    def step(self) -> None:
        """An ask after as many events as a step has: a step of the rhythm, or its end."""
        if self.notes.codes != self._pattern:
            self.stop()
            return
        self.notes.codes.clear()
        self._count()

    def _count(self) -> None:
        pulse = self.pulse
        pulse.count += 1
        if pulse.count >= pulse.due_count or self.notes.times[-1] >= pulse.due_ns:
            self.block_ended()

    def _ask(self, pull: Pull, grad_enabled: bool) -> int:
        """In a rest: whether the step goes on as usual is told by the optimizers' steps since the last ask."""
        if pull is not self._pull:
            before: int = self._alarms["ask"](pull, grad_enabled)
            return before
        pulse, steps = self.pulse, self.rests.steps
        self.notes.times.append(self._ledger.clock())
        left = pulse.left - 1
        if steps.qsize() != (left == 0):
            self.stop()
        elif left:
            pulse.left = left
        else:
            steps.get_nowait()
            pulse.left = pulse.batches
            self._count()
        return BACK

    def _delivered(self, pull: Pull, samples: float, before: int) -> None:
        pull.delivered += 1
        self.notes.samples.append(samples)
        self.notes.times.append(self._ledger.clock())

    def block_ended(self) -> None:
        """Steps are put down; a rest ends, or begins where that is due."""
        rested, begin = self.pulse.resting, perf_counter_ns()
        if rested:
            self._align(self.pulse.count - self._counted)
        self.put_down()
        ledger = self._ledger
        self.spent_ns += perf_counter_ns() - begin  # the windows count what they cost themselves
        if ledger.windows is not None and (marks := ledger.windows.step_ended(self._base)) is not None:
            self.stop("marks")
            ledger.marks = marks
            return
        begin = perf_counter_ns()
        if rested:
            self.rests.on()
            self.rests.over()
            self._listen()
        elif self.rests.due(self._ask_before):
            self._rest()
        self.spent_ns += perf_counter_ns() - begin

    def _align(self, steps: int) -> None:
        """Whole steps have so many times; an interrupt in the midst of a note leaves one too few or too many."""
        times, samples = self.notes.times, self.notes.samples
        for noted, due, fill in ((times, steps * len(self._pattern), self._base), (samples, steps * self._batches, 0)):
            if len(noted) > due:
                del noted[: len(noted) - due]
            while len(noted) < due:
                noted.insert(0, fill)

    def _next_block(self, now: int) -> None:
        pulse, look_at = self.pulse, self._ledger.look_at
        steps = self.rests.left() if pulse.resting else self.rests.block(BLOCK)
        pulse.due_ns = now + (REST_NS if pulse.resting else BLOCK_NS)
        pulse.due_count = min(pulse.count + steps, look_at if look_at > pulse.count else math.inf)

    def put_down(self) -> None:
        """The whole steps that were noted become rows."""
        steps = self.pulse.count - self._counted
        if steps and self._lost(steps):
            self._counted = self.pulse.count
            self.notes.clear()
        elif steps and self._alone is not None:
            self._put_down_alone(steps, self._alone)
        elif steps and self._rows is not None:
            self._put_down(steps, self._rows)

    def _lost(self, steps: int) -> bool:
        """Whether an interrupt came when the notes of these steps had been put down, and were being taken away."""
        times, samples = len(self.notes.times), len(self.notes.samples)
        return times < steps * len(self._pattern) or samples < steps * self._batches

    def _put_down(self, steps: int, formula: BlockRows) -> None:
        ledger, rests = self._ledger, self.rests
        usual = rests.usual if self.pulse.resting else None
        rows, end, spent = formula.of(steps, self._base, self.notes, None if usual is None else usual.split)
        self._read_cpu(rows, end)
        if usual is None:
            rests.learn(spent)
        else:
            rests.rested += steps
            rests.rested_ns += end - self._base
        ledger.mark = ledger.step_begin = self._base = end
        for one in self._pulls:
            one.loader[0] += steps
        ledger.last_samples = formula.last_samples(self.notes.samples[steps * self._batches - 1])
        self._written(rows, steps, end)

    def _put_down_alone(self, steps: int, formula: AloneRows) -> None:
        """As `put_down`, of steps that pull from nothing: most of a further step is open when they have ended."""
        ledger = self._ledger
        rows, left = formula.of(steps, self._left_open(), self.notes)
        self._read_cpu(rows, left.begin)
        ledger.acc, ledger.step_begin, ledger.mark = list(left.acc), left.begin, left.mark
        ledger.now.forward_samples, ledger.now.transfer_bytes = left.samples, left.moved
        self._base = left.mark
        self._written(rows, steps, left.mark)

    def _read_cpu(self, rows: Rows, end: int) -> None:
        ledger = self._ledger
        if end >= ledger.cpu_due:
            cpu, ledger.cpu_due = ledger.cpu_clock(), end + CPU_EVERY_NS
            rows[-1, COLUMN["cpu_s"]] = (cpu - ledger.cpu_mark) * 1e-9
            ledger.cpu_mark = cpu

    def _written(self, rows: Rows, steps: int, now: int) -> None:
        """The notes of steps are rows now."""
        ledger, events = self._ledger, steps * (len(self._pattern) - self._pattern.count(LEAF))
        ledger.events += events
        self.noted += events
        noted, whole = self.notes, steps * len(self._pattern)
        del noted.times[:whole], noted.samples[: steps * self._batches], noted.moved[: steps * self._copies]
        del noted.inputs[: steps * self._forwards]
        self._counted = self.pulse.count
        self._next_block(now)
        ledger.table.append_rows(rows)
        if ledger.on_step is not None:
            ledger.on_step(now)

    def stop(self, cause: str = "") -> None:
        """The rhythm is broken: the ledger is told of the open step at the times noted, and goes on itself.

        Args:
            cause: the event that no rhythm has; empty where one has come out of its order.
        """
        pulse, rests, ledger = self.pulse, self.rests, self._ledger
        if not (pulse.taking or pulse.resting):
            return
        usual, now, begin = rests.usual if pulse.resting else None, 0, perf_counter_ns()
        if usual is not None:
            now = ledger.clock()
            rests.on()
        self.put_down()
        rests.broken(cause)
        pulse.taking = pulse.resting = pulse.alone = False
        pulse.pull, pulse.iterator = None, 0
        stale = not cause and pulse.count == self._taken  # not one step of it: the loop has another rhythm by now
        noted = self.notes.taken()
        self._release()
        if usual is not None:
            noted.codes = self._pattern[: len(noted.times)]
            noted = usual.filled(noted, rests.stepped(), now)
            if self._rows is not None:
                noted.moved = array("q", [self._rows.bytes_a_copy()] * sum(map(is_copy, noted.codes)))
        self._wait = 2 * len(noted.codes) + FIRST_LOOK  # no look while it is told
        self.spent_ns += perf_counter_ns() - begin
        tell(ledger, noted, self._pull, self._ask_before, self._key)
        self._wait = self._pause = self._tries = FIRST_LOOK
        if stale:
            self._tries = 0

    def wake(self) -> None:
        """A rest ends here: what comes is to be heard."""
        if self.pulse.resting:
            self.stop("wake")
