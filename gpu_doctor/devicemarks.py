"""Time as the device sees it: marks put into its queue at a step's first and last launch, read when it has passed them.

CUDA is asynchronous, so only the device's own clock can tell whether it starved. Two marks a step are enough for the
*gap* (from the last mark of one step to the first of the next) and the step's device seconds; whether the last mark is
already passed when the host ends the step tells that the queue ran empty. Nothing here ever waits.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from gpu_doctor.steptable import StepTable


class DeviceClock(Protocol):
    """A device that marks can be put to: CUDA events, or a simulated queue in tests."""

    def mark(self) -> Any:
        """Puts a mark into the device's queue."""
        ...

    def done(self, mark: Any) -> bool:
        """True if the device has passed the mark; does not wait."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two passed marks."""
        ...

    def free(self, mark: Any) -> None:
        """Gives a mark back for reuse."""
        ...


class StepMarks:
    """The marks of the open step and those of ended steps that the device has not passed yet."""

    def __init__(self, device: DeviceClock, table: StepTable) -> None:
        """Readings go to the rows of `table`."""
        self._device, self._table = device, table
        self._first: Any = None
        self._next_first: Any = None
        """First work after the optimizer stepped: the next step's, if the step ends at its optimizer."""
        self._end: Any = None
        self._before: Any = None
        self._pending: deque[tuple[int, int, Any, Any, Any, float]] = deque()

    def work(self) -> None:
        """Work is launched: the first mark of the step, or of what may be the next one."""
        if self._first is None:
            self._first = self._device.mark()
        elif self._end is not None and self._next_first is None:
            self._next_first = self._device.mark()

    def stepped(self) -> None:
        """An optimizer has stepped: so far the step's last mark."""
        for mark in (self._end, self._next_first):
            if mark is not None:
                self._device.free(mark)
        self._end, self._next_first = self._device.mark(), None

    def close(self, row: int) -> None:
        """The step has ended and stands in `row` of the table."""
        first, end, before = self._first, self._end, self._before
        self._first, self._next_first, self._end = self._next_first, None, None
        if first is not None and end is not None:
            empty = 1.0 if self._device.done(end) else 0.0
            self._pending.append((row, self._table.generation, before, first, end, empty))
            self._before = end
        else:
            for mark in (first, end):
                if mark is not None:
                    self._device.free(mark)
            if before is not None:
                # It may still be the unread end of the step before: it is freed when its turn comes.
                self._pending.append((-1, 0, before, None, before, 0.0))
            self._before = None
        self.read()

    def read(self) -> None:
        """Reads what the device has passed. A step's end mark is freed once the next step has read its gap."""
        while self._pending and self._device.done(self._pending[0][4]):
            row, generation, before, first, end, empty = self._pending.popleft()
            if first is None:
                self._device.free(before)
                continue
            gpu_s = self._device.seconds(first, end)
            if before is not None:
                gap_s = max(self._device.seconds(before, first), 0.0)
                self._table.add_device(row, generation, gpu_s, gap_s, empty)
                self._device.free(before)
            self._device.free(first)
