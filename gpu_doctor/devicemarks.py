"""Time as the device sees it: marks put into its queue at a step's first and last launch, read when it has passed them.

CUDA is asynchronous, so only the device's own clock can tell whether it starved. Two marks a step are enough for the
*gap* (from the last mark of one step, or of an evaluation after it, to the first of the next) and the step's device
seconds; whether the last mark is already passed when the host ends the step tells that the queue ran empty. Nothing
here ever waits, and no error of the clock reaches the loop: with the first one the marks end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from gpu_doctor.steptable import StepTable

_NAN: Final = float("nan")


class DeviceClock(Protocol):
    """A device that marks can be put to: CUDA events, or a simulated queue in tests."""

    def ready(self) -> bool:
        """False while nothing may be put into the queue or asked of it: a graph is being captured."""
        ...

    def mark(self) -> Any:
        """Puts a mark into the device's queue."""
        ...

    def done(self, mark: Any) -> bool:
        """True if the device has passed the mark; does not wait."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two passed marks; NaN if they were put to two devices."""
        ...

    def free(self, mark: Any) -> None:
        """Gives a mark back for reuse."""
        ...


class StepMarks:
    """The marks of the open step and those of ended steps that the device has not passed yet."""

    def __init__(
        self, device: DeviceClock, table: StepTable, failed: Callable[[Exception], None] | None = None
    ) -> None:
        """Readings go to the rows of `table`; `failed` hears of the clock's first error, after which all is quiet."""
        self._device, self._table, self._failed = device, table, failed
        self._off = False
        self._first: Any = None
        self._next_first: Any = None
        """First work after the optimizer stepped: the next step's, if the step ends at its optimizer."""
        self._end: Any = None
        self._before: Any = None
        self._between: Any = None
        """End of an evaluation between the step before and this one,"""
        self._next_between: Any = None
        """and of one between this step and the next."""
        self._launched: Any = None
        """End of the newest launches, in a loop without an optimizer."""
        self._pending: deque[tuple[int, int, Any, Any, Any, float]] = deque()

    def work(self) -> None:
        """Work is launched: the first mark of the step, or of what may be the next one."""
        if self._end is not None:
            if self._next_first is None:
                self._next_first = self._mark()
        elif self._first is None:
            self._first = self._mark()

    def stepped(self) -> None:
        """An optimizer has stepped, or a step without one ends: so far its last mark."""
        self._free(self._end, self._next_first, self._next_between)
        self._end, self._next_first, self._next_between = self._mark(), None, None

    def stepped_later(self) -> None:
        """The step ends here, what was launched since its last mark is its own: an update by hand."""
        if self._end is not None and self._next_first is None and self._next_between is None:
            self.stepped()

    def launched(self) -> None:
        """A forward or backward has ended in a loop without an optimizer.

        The last mark of its steps is put when they end: too late to ask whether the queue ran empty, but for this one.
        """
        self._free(self._launched)
        self._launched = self._mark()

    def evaluated(self) -> None:
        """Work of an evaluation was launched: the gap to the next step begins where it ends."""
        if self._end is not None:
            if self._next_first is None:
                self._free(self._next_between)
                self._next_between = self._mark()
        elif self._first is None:
            self._free(self._between)
            self._between = self._mark()

    def evaluated_after_all(self) -> None:
        """What was marked as a step's first work was an evaluation's."""
        if self._end is not None:
            self._free(self._next_first)
            self._next_first = None
        else:
            self._free(self._first)
            self._first = None
        self.evaluated()

    def close(self, row: int) -> None:
        """The step has ended and stands in `row` of the table."""
        first, end, before, launched = self._first, self._end, self._before, self._launched
        if self._between is not None:
            self._forget(before)
            before = self._between
        self._first, self._next_first, self._end = self._next_first, None, None
        self._between, self._next_between, self._launched = self._next_between, None, None
        ready = self._ready()
        if first is not None and end is not None and ready:
            empty = 1.0 if self._done(end if launched is None else launched) else 0.0
            self._pending.append((row, self._table.generation, before, first, end, empty))
            self._before = end
        else:
            self._free(first, end)
            self._forget(before)
            self._before = None
        self._free(launched)
        if ready:
            self._read()

    def read(self) -> None:
        """Reads what the device has passed."""
        if self._ready():
            self._read()

    def _read(self) -> None:
        """A step's end mark is freed once the next step has read its gap."""
        while self._pending and self._done(self._pending[0][4]):
            row, generation, before, first, end, empty = self._pending.popleft()
            if first is not None and before is not None:
                gpu_s, gap_s = self._seconds(first, end), self._seconds(before, first)
                if gpu_s == gpu_s and gap_s == gap_s:
                    self._table.add_device(row, generation, gpu_s, max(gap_s, 0.0), empty)
            self._free(before, first)

    def _forget(self, mark: Any) -> None:
        """It may still be the unread end of the step before: it is freed when its turn comes."""
        if mark is not None:
            self._pending.append((-1, 0, mark, None, mark, 0.0))

    # ---- the clock, whose errors end here ---------------------------------------------------------------------------

    def _ready(self) -> bool:
        try:
            return not self._off and self._device.ready()
        except Exception as error:
            self._fail(error)
            return False

    def _mark(self) -> Any:
        try:
            return self._device.mark() if not self._off and self._device.ready() else None
        except Exception as error:
            self._fail(error)
            return None

    def _done(self, mark: Any) -> bool:
        try:
            return not self._off and self._device.done(mark)
        except Exception as error:
            self._fail(error)
            return False

    def _seconds(self, begin: Any, end: Any) -> float:
        try:
            return _NAN if self._off else self._device.seconds(begin, end)
        except Exception as error:
            self._fail(error)
            return _NAN

    def _free(self, *marks: Any) -> None:
        try:
            for mark in marks:
                if mark is not None and not self._off:
                    self._device.free(mark)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._off = True
        if self._failed is not None:
            self._failed(error)
