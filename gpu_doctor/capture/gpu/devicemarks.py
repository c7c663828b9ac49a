"""Time as the device sees it: marks put into its queue where a step's phases change, read when it has passed them.

CUDA is asynchronous, so only the device's own clock can tell whether it starved. Two marks a step are enough for the
*gap* (from the last mark of one step, or of an evaluation after it, to the first of the next) and the step's device
seconds; those between them tell its phases apart. Whether the last mark is already passed when the host ends the step
tells that the queue ran empty. Nothing here ever waits, and no error of the clock reaches the loop: with the first one
the marks end. Which steps are marked at all, `windows.py` says.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.gpu.clock import DeviceClock as DeviceClock
from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.devicecopies import CopyMarks
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording.steps import BACKWARD, FORWARD, OPTIMIZER, OTHER

MOST_PARTS: Final = 32
"""Marks inside a step: one with more phases than that (long accumulations) is read as a whole."""
MOST_UPDATES: Final = 8
"""Ends of what may be an update by hand in a step; with more of them (one for each parameter) none is believed."""
_TIMED: Final = (FORWARD, BACKWARD, OPTIMIZER)
_NAN: Final = float("nan")


class _Open:
    """The marks of a step whose end is not known yet."""

    __slots__ = ("between", "copied_ns", "copies", "first", "parts", "waited_ns")

    def __init__(self) -> None:
        self.first: Any = None
        self.between: Any = None
        """The end of an evaluation before its first work."""
        self.parts: list[tuple[int, Any]] | None = []
        """Phases that begin after the first one, each with its mark; None = too many."""
        self.waited_ns = self.copied_ns = 0
        """Of the host, for batches and copies, from the step's begin to its first work: these fall into the gap."""
        self.copies = CopyMarks()
        """Those of the copies that the host did not wait for, by the device's clock."""

    def marks(self) -> list[Any]:
        """All but the evaluation's end."""
        return [self.first, *(mark for _, mark in self.parts or ()), *self.copies.marks()]


class _Ended:
    """A step whose marks the device has not all passed yet."""

    __slots__ = ("before", "empty", "end", "generation", "row", "step")

    def __init__(self, row: int, generation: int, before: Any, step: _Open, end: Any, empty: float) -> None:
        self.row, self.generation, self.before, self.step, self.end, self.empty = (
            *(row, generation, before),
            *(step, end, empty),
        )


class StepMarks:
    """The marks of the open step and those of ended steps that the device has not passed yet."""

    def __init__(
        self,
        device: DeviceClock,
        table: StepTable,
        failed: Callable[[Exception], None] | None = None,
        host: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Readings go to the rows of `table`.

        Args:
            device: its clock. table: of the steps.
            failed: hears of the clock's first error, after which all is quiet. host: ns, for what the marks cost.
        """
        self.clock, self._table, self._host = QuietClock(device, failed, host), table, host
        self._now = _Open()
        self._next = _Open()
        """What comes after the optimizer stepped: the next step's, if the step ends at its optimizer."""
        self._end: Any = None
        self._at_end = 0, 0
        self._before: Any = None
        self._launched: Any = None
        """End of the newest launches, in a loop without an optimizer."""
        self._updates = 0
        self._pending: deque[_Ended] = deque()

    @property
    def pending(self) -> bool:
        """Whether there is something to read."""
        return bool(self._pending)

    def work(self, waited_ns: int = 0, copied_ns: int = 0) -> None:
        """A forward begins: the first mark of the step, or of what may be the next one; later ones begin a part.

        Args:
            waited_ns, copied_ns: of the open step's host time so far, for batches and copies.
        """
        step = self._now if self._end is None else self._next
        if step.first is not None:
            self.part(FORWARD)
            return
        step.first = self.clock.mark()
        if self._end is not None:
            waited_ns, copied_ns = waited_ns - self._at_end[0], copied_ns - self._at_end[1]
        step.waited_ns, step.copied_ns = waited_ns, copied_ns

    def copying(self) -> None:
        """A copy that the host does not wait for is about to be issued: before the first work it is in the gap."""
        step = self._now if self._end is None else self._next
        if step.first is None:
            step.copies.begin(self.clock, self._host())

    def copied(self) -> None:
        """It was issued."""
        step = self._now if self._end is None else self._next
        if step.first is None:
            step.copies.end(self.clock, self._host())

    def part(self, phase: int) -> None:
        """Another phase begins on the host: what is launched from now on is its work."""
        step = self._now if self._end is None else self._next
        if step.first is not None:
            self._add(step, (phase, self.clock.mark()))

    def _add(self, step: _Open, *parts: tuple[int, Any]) -> None:
        if step.parts is not None and (None in (mark for _, mark in parts) or len(step.parts) >= MOST_PARTS):
            self.clock.free(*(mark for _, mark in step.parts))
            step.parts = None
        if step.parts is None:
            self.clock.free(*(mark for _, mark in parts))
        else:
            step.parts.extend(parts)

    def stepped(self, waited_ns: int = 0, copied_ns: int = 0) -> None:
        """An optimizer has stepped, or a step without one ends: so far its last mark. Args as of `work`."""
        step, later = self._now, self._next
        if self._end is not None and step.first is not None:
            # Not the end after all: the work since then is this step's, or that of a further optimizer.
            self._add(step, (OPTIMIZER if later.first is None else OTHER, self._end))
            if later.first is not None:
                self._add(step, (FORWARD, later.first))
                if later.parts is None:  # too many there are too many in all
                    self.clock.free(*(mark for _, mark in step.parts or ()))
                    step.parts = None
                else:
                    self._add(step, *later.parts)
            self.clock.free(*later.copies.marks())
        else:
            self.clock.free(self._end, *later.marks())
        self.clock.free(later.between)
        self._end, self._next, self._at_end = self.clock.mark(), _Open(), (waited_ns, copied_ns)

    def stepped_later(self) -> None:
        """The step ends here, what was launched since its last mark is its own: an update by hand."""
        if self._end is not None and self._next.first is None and self._next.between is None:
            self.stepped(*self._at_end)

    def updated(self) -> None:
        """As `stepped_later`, maybe several times in a step: only the last one is its end."""
        if self._end is not None and self._next.first is None and self._next.between is None:
            self._updates += 1
            if self._updates > MOST_UPDATES:
                self.unheard()
            else:
                self.stepped(*self._at_end)

    def unheard(self) -> None:
        """It is not known where the open step's work ends: it is not read."""
        self.clock.free(*self._now.marks())
        self._now.first, self._now.parts, self._now.copies = None, [], CopyMarks()

    def launched(self) -> None:
        """A forward or backward has ended in a loop without an optimizer.

        The last mark of its steps is put when they end: too late to ask whether the queue ran empty, but for this one.
        """
        self.clock.free(self._launched)
        self._launched = self.clock.mark()

    def evaluated(self) -> None:
        """Work of an evaluation was launched: the gap to the next step begins where it ends."""
        step = self._now if self._end is None else self._next
        if step.first is None:
            self.clock.free(step.between, *step.copies.marks())
            step.between, step.copies = self.clock.mark(), CopyMarks()

    def evaluated_after_all(self) -> None:
        """What was marked as a step's first work was an evaluation's."""
        step = self._now if self._end is None else self._next
        self.clock.free(*step.marks())
        step.first, step.parts, step.copies = None, [], CopyMarks()
        self.evaluated()

    def close(self, row: int) -> None:
        """The step has ended and stands in `row` of the table."""
        step, end, before, launched = self._now, self._end, self._before, self._launched
        if step.between is not None:
            self._forget(before)
            before = step.between
        self._now, self._next, self._end, self._launched = self._next, _Open(), None, None
        self._updates = 0
        begin, ready = self._host(), self.clock.ready()
        if step.first is not None and end is not None and ready:
            empty = 1.0 if self.clock.done(end if launched is None else launched) else 0.0
            self._pending.append(_Ended(row, self._table.generation, before, step, end, empty))
            self._before = end
        else:
            self.clock.free(end, *step.marks())
            self._forget(before)
            self._before = None
        self.clock.free(launched)
        if ready:
            self._read()
        self.clock.spent_ns += self._host() - begin

    def rest(self) -> None:
        """No marks from here on for a while: the open ones mean nothing then, those of ended steps are still read."""
        self._forget(self._before)
        for step in (self._now, self._next):
            self.clock.free(step.between, *step.marks())
        self.clock.free(self._end, self._launched)
        self._now, self._next, self._end, self._launched, self._before = _Open(), _Open(), None, None, None

    def read(self) -> None:
        """Reads what the device has passed."""
        begin = self._host()
        if self._pending and self.clock.ready():
            self._read()
        self.clock.spent_ns += self._host() - begin

    def _read(self) -> None:
        """A step's end mark is freed once the next step has read its gap."""
        while self._pending and self.clock.done(self._pending[0].end):
            one = self._pending.popleft()
            step = one.step
            if step.first is not None and one.before is not None:
                gpu_s = self.clock.seconds(step.first, one.end)
                gap_s = max(self.clock.seconds(one.before, step.first), 0.0)
                if gpu_s == gpu_s and gap_s == gap_s:
                    # Copies are issued right before the step's first mark: the end of the gap is theirs. Only what it
                    # is longer by can be the wait, which came before them, behind a queue that may have hidden it.
                    # Of one that the host does not wait for the host knows next to nothing, and the device all.
                    queued_s = step.copies.seconds(self.clock, one.before, gap_s) if step.copies else 0.0
                    copy_s = max(min(step.copied_ns * 1e-9, gap_s), queued_s)
                    wait_s = min(step.waited_ns * 1e-9, gap_s - copy_s)
                    values = (gpu_s, gap_s, wait_s, copy_s, *self._phases(one), one.empty)
                    self._table.add_device(one.row, one.generation, values)
            self.clock.free(one.before, *step.marks())

    def _phases(self, one: _Ended) -> list[float]:
        """Device seconds of forwards, backwards and optimizers in a step; NaN = not told apart."""
        parts, spent = one.step.parts, dict.fromkeys(_TIMED, 0.0)
        if parts is None:
            return [_NAN] * len(_TIMED)
        begins = [(FORWARD, one.step.first), *parts]
        for (phase, begin), end in zip(begins, [*(mark for _, mark in parts), one.end], strict=True):
            if phase in spent:
                spent[phase] += self.clock.seconds(begin, end)
        return list(spent.values())

    def _forget(self, mark: Any) -> None:
        """It may still be the unread end of the step before: it is freed when its turn comes."""
        if mark is not None:
            self._pending.append(_Ended(-1, 0, mark, _Open(), mark, 0.0))
