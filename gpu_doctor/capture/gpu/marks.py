"""The device's columns of a step, from the marks that the taps have put into its queue.

A mark rides on an event of the log; the step clock hands those of a step on when it has ended. From the last mark of
the step before to the first work of this one the device had a gap; of that gap the copies issued last are copies, and
the rest is at most what the host had waited for its batch. Nothing here ever waits: a step is read when the device has
passed its last mark. Inside of a step a copy that the host waits for is marked too: the device has nothing else to do
meanwhile, and that time counts as gap. Which steps are marked at all, `windows.py` says.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from gpu_doctor.capture import events
from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording.steps import BACKWARD, FORWARD, OPTIMIZER, OTHER

MOST_PARTS: Final = 32
"""Marks inside a step: one with more phases than that (long accumulations) is read as a whole."""
MOST_UPDATES: Final = 8
"""Ends of what may be an update by hand in a step; with more of them (one for each parameter) none is believed."""
_TIMED: Final = (FORWARD, BACKWARD, OPTIMIZER)
_BEGINS: Final = {
    events.CALL: FORWARD,
    events.CALLED: OTHER,
    events.GRADIENT: BACKWARD,
    events.BACKED: OTHER,
    events.STEP: OPTIMIZER,
    events.STEPPED: OTHER,
}
"""The phase whose work is launched from a mark on, by the event that it was put for."""
_NAN: Final = float("nan")


class Marked(NamedTuple):
    """A mark, and what it was put for."""

    code: int
    """Of the event (CALL for every forward)."""
    mark: Any
    """None where none could be put: a graph was being captured, or the clock has failed."""
    waited_ns: int
    copied_ns: int
    """Of the host, for batches and copies, from the step's begin to a forward's: these fall into the gap."""
    evaluation: bool = False


class StepMarks(NamedTuple):
    """All marks of a step that has ended, in their order."""

    marks: list[Marked]
    own: bool
    """The loop changes its parameters itself."""
    readable: bool
    """It is known where the step's work ends."""
    empty: bool | None
    """Whether the device had done all of it when the step ended; None = not asked."""


class _Ended(NamedTuple):
    """A step whose marks the device has not all passed yet."""

    row: int
    generation: int
    before: Any
    """The mark at which the gap begins, None = not known."""
    first: Marked | None
    copies: list[tuple[Any, Any]]
    held: list[tuple[Any, Any]]
    """Copies inside of the step that the host waited for."""
    parts: list[tuple[int, Any]] | None
    end: Any
    number: int
    """Of the step in the run."""
    empty: float
    kept: list[Any]
    """Marks to be given back when it is read."""


class MarkReader:
    """Reads steps that have ended, as the device passes their marks."""

    def __init__(self, clock: QuietClock, table: StepTable, host: Callable[[], int] = time.perf_counter_ns) -> None:
        """Args: clock: the device's. table: of the steps. host: ns, for what the readings cost."""
        self.clock, self._table, self._host = clock, table, host
        self._before: Any = None
        """The end of the last step that was marked, if it is the one before."""
        self._pending: deque[_Ended] = deque()
        self._anchor: Any = None
        """The end of the last step that was read, kept over steps that are not marked; what is read next is told from
        there on."""
        self._anchored = 0
        """Which step that was."""
        self._anchor_spent = False
        """Nothing else needs it any more."""

    def ended(self, row: int, found: StepMarks, number: int) -> None:
        """The step of this number has ended and stands in `row` of the table."""
        marks = found.marks
        first = next((i for i, one in enumerate(marks) if one.code == events.CALL and not one.evaluation), None)
        end = None if first is None or not found.readable else _end_of(found, first)
        before = self._before
        if first is None or end is None or marks[first].mark is None or marks[end].mark is None:
            self.clock.free(*(one.mark for one in marks))
            self._forget(before)
            self._before = None
            return
        looked = next((i for i in range(first - 1, -1, -1) if marks[i].evaluation and marks[i].mark is not None), None)
        kept = [one.mark for i, one in enumerate(marks) if i != end]
        if looked is not None:
            kept.append(before)
            before = marks[looked].mark
        else:
            kept.append(before)
        inside = [one for one in marks[first + 1 : end] if one.evaluation or one.code in _BEGINS]
        parts: list[tuple[int, Any]] | None = [
            (OTHER if one.evaluation else _BEGINS[one.code], one.mark) for one in inside
        ]
        if len(inside) > MOST_PARTS or any(one.mark is None for one in inside):
            parts = None
        empty = _NAN if found.empty is None else float(found.empty)
        copies = _copies(marks[(looked or 0) : first], events.COPYING, events.COPIED)
        held = _copies(marks[first:end], events.WAITING, events.SYNCED)
        last = marks[end].mark
        self._pending.append(
            _Ended(row, self._table.generation, before, marks[first], copies, held, parts, last, number, empty, kept)
        )
        self._before = last

    def rest(self) -> None:
        """No step is marked from here on for a while: nothing is known of the one before the next that is."""
        self._forget(self._before)
        self._before = None

    def read(self) -> None:
        """Reads what the device has passed by now."""
        begin = self._host()
        if self._pending and self.clock.ready():
            while self._pending and self.clock.done(self._pending[0].end):
                self._read(self._pending.popleft())
        self.clock.spent_ns += self._host() - begin

    def finish(self) -> None:
        """Reads what the device has passed in the end; nothing is marked any more."""
        self.read()
        if self._anchor_spent:
            self.clock.free(self._anchor)
        self._anchor, self._anchor_spent = None, False

    def _read(self, one: _Ended) -> None:
        """A step's end mark is given back once the next step has read its gap."""
        if one.first is not None and one.before is not None:
            gpu_s = self.clock.seconds(one.first.mark, one.end)
            gap_s = max(self.clock.seconds(one.before, one.first.mark), 0.0)
            if gpu_s == gpu_s and gap_s == gap_s:
                # Copies are issued right before the step's first mark: the end of the gap is theirs. Only what it is
                # longer by can be the wait, which came before them, behind a queue that may have hidden it. Of one
                # that the host does not wait for the host knows next to nothing, and the device all.
                queued_s = self._copied_s(one, gap_s)
                copy_s = max(min(one.first.copied_ns * 1e-9, gap_s), queued_s)
                wait_s = min(one.first.waited_ns * 1e-9, gap_s - copy_s)
                since, held_s = self._since(one), min(self._held_s(one), gpu_s)
                device_s = (gpu_s - held_s, gap_s + held_s, wait_s, copy_s + held_s)
                values = (*device_s, *self._phases(one), one.empty, *since)
                self._table.add_device(one.row, one.generation, values)
        elif one.first is not None and self._anchor is None:
            self._anchor, self._anchored = one.end, one.number
        self._give_back(one.kept)

    def _since(self, one: _Ended) -> tuple[float, float]:
        """Device seconds and steps since the end of the last step that was read; this one's end is the next anchor."""
        before, steps = self._anchor, float(one.number - self._anchored)
        seconds = _NAN if before is None else self.clock.seconds(before, one.end)
        if before is not None and seconds != seconds:  # on another device: the next one here is told from where it was
            return _NAN, _NAN
        if self._anchor_spent:
            self.clock.free(before)
        self._anchor, self._anchored, self._anchor_spent = one.end, one.number, False
        return (seconds, steps) if before is not None else (_NAN, _NAN)

    def _give_back(self, marks: Sequence[Any]) -> None:
        """Marks that a step does not need any more; the anchor stays until there is another one."""
        self._anchor_spent |= any(one is self._anchor for one in marks if one is not None)
        self.clock.free(*(one for one in marks if one is not self._anchor))

    def _copied_s(self, one: _Ended, gap_s: float) -> float:
        """How much of the gap the device has copied, of what the host did not wait for.

        Copies on another stream may have begun before the gap, and may go on after it.
        """
        total = 0.0
        for begin, end in one.copies:
            if not self.clock.done(begin):
                continue
            begin_s = max(self.clock.seconds(one.before, begin), 0.0)
            end_s = min(self.clock.seconds(one.before, end), gap_s) if self.clock.done(end) else gap_s
            if end_s > begin_s:  # neither is NaN: the copy went to this device
                total += end_s - begin_s
        return min(total, gap_s)

    def _held_s(self, one: _Ended) -> float:
        """How long the device did nothing but copy inside of the step, while the host waited for that."""
        spent = [self.clock.seconds(begin, end) for begin, end in one.held]
        return sum(max(seconds, 0.0) for seconds in spent if seconds == seconds)

    def _phases(self, one: _Ended) -> list[float]:
        """Device seconds of forwards, backwards and optimizers in a step; NaN = not told apart."""
        if one.parts is None or one.first is None:
            return [_NAN] * len(_TIMED)
        spent = dict.fromkeys(_TIMED, 0.0)
        begins = [(FORWARD, one.first.mark), *one.parts]
        ends = [*(mark for _, mark in one.parts), one.end]
        for (phase, begin), end in zip(begins, ends, strict=True):
            if phase in spent:
                spent[phase] += self.clock.seconds(begin, end)
        return list(spent.values())

    def _forget(self, mark: Any) -> None:
        """It may still be the unread end of the step before: it is given back when its turn comes."""
        if mark is not None:
            self._pending.append(_Ended(-1, 0, None, None, [], [], None, mark, 0, _NAN, [mark]))


def _end_of(found: StepMarks, first: int) -> int | None:
    """Which mark is the end of the step's work."""
    codes = [one.code for one in found.marks]
    wanted: Sequence[int] = (events.STEPPED,)
    if events.STEPPED not in codes:
        wanted = (events.BACKED, events.ZERO, events.UPDATED) if found.own else (events.NEXT,)
    if found.own and codes.count(events.UPDATED) > MOST_UPDATES:
        return None
    return next((i for i in range(len(codes) - 1, first, -1) if codes[i] in wanted), None)


def _copies(marks: Sequence[Marked], begins: int, ends: int) -> list[tuple[Any, Any]]:
    """Begin and end of the copies that are marked so: COPYING to COPIED, or WAITING to SYNCED if the host waits."""
    found, begin = [], None
    for one in marks:
        if one.code == begins and not one.evaluation:
            begin = one.mark
        elif one.code == ends and begin is not None:
            if one.mark is not None:
                found.append((begin, one.mark))
            begin = None
    return found
