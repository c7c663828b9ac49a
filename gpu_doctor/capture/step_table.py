"""The rows of a run in bounded memory: steps are stored one by one until there are too many, then summed in pairs.

The stride doubles whenever the table is full, so a row stands for 1, 2, 4, ... steps, evenly over the whole run: early
and late parts are equally fine, every sum stays exact, and ten million steps fit in some 25 MB at constant cost a step.

A step's values are packed straight into the array's memory: each call of numpy costs microseconds, however small, and
boxed numbers that stay in memory would push the loop's data out of the processor's caches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.recording import Steps
from gpu_doctor.recording.steps import STEP_COLUMNS

CAPACITY: Final = 1 << 17
FIRST_ROWS: Final = 4096
BLOCK: Final = 64
"""Number of steps that are summed in one go once rows stand for several; a power of two, as every stride is."""
_COLUMNS: Final = len(STEP_COLUMNS)
_PACK: Final = struct.Struct(f"{_COLUMNS}d")
_FIRST_OF_ROW: Final = [STEP_COLUMNS.index(name) for name in ("start_s", "kind", "epoch")]
"""Columns in which a merged row has its first step's value; all others are sums."""
_SECONDS: Final = [
    i
    for i, name in enumerate(STEP_COLUMNS)
    if name.endswith("_s") and name != "start_s" and not name.startswith(("gpu_", "exposed_"))
]
DEVICE_COLUMNS: Final = (
    *("gpu_s", "gpu_gap_s", "exposed_wait_s", "exposed_transfer_s"),
    *("gpu_forward_s", "gpu_backward_s", "gpu_optimizer_s", "gpu_caught_up_s"),
    *("gpu_since_s", "gpu_since_steps"),
)
"""Columns that the device's clock measures; NaN = not read."""
_GPU: Final = [STEP_COLUMNS.index(name) for name in (*DEVICE_COLUMNS, "device_steps")]


class StepTable:
    """Table of step rows, to which one thread appends; readers on other threads slice `steps()` at any time."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """`capacity`: most rows (an even number); memory is allocated as needed."""
        self._capacity = capacity
        self.stride = 1
        self.generation = 0
        """Number of times that rows were summed in pairs; row numbers of an older generation are invalid."""
        self._table = _Block(min(FIRST_ROWS, capacity))
        self._scratch = _Block(BLOCK)
        """Steps that are not summed into rows yet, once rows stand for several."""
        self._publish()

    def append(self, row: Sequence[float]) -> int:
        """Adds one step, as values in the order of STEP_COLUMNS.

        Returns:
            The number of its row, for `add_device` later; -1 if rows stand for several steps.
        """
        table = self._table
        number = table.filled
        if number >= table.room or self.stride > 1:
            if self.stride == 1 and number >= self._capacity:
                self._thin()
            if self.stride > 1:
                return self._gather(row)
            table = self._grown()
        _PACK.pack_into(table.memory, number * _PACK.size, *row)
        table.filled = number + 1
        return number

    def add_device(self, row: int, generation: int, values: Sequence[float]) -> None:
        """Adds the device readings of one step, which are known some steps later, to its row.

        If the row is gone because rows were summed since, they go to the newest row: the sums stay exact.

        Args:
            row: number of the row, from `append`.
            generation: the table's generation at that time.
            values: the readings, in the order of DEVICE_COLUMNS.
        """
        if row < 0 or generation != self.generation:
            self._flush()
            row = self._table.filled - 1
        if row < 0:
            return
        cells = self._table.rows[row]
        for column, value in zip(_GPU, (*values, 1.0), strict=True):
            if value == value:
                now = cells[column]
                cells[column] = value if now != now else now + value

    def extend(self, row: Sequence[float]) -> None:
        """Adds the host seconds of `row` to the newest row: they came right after the last step and belong to none."""
        self._flush()
        if self._table.filled:
            self._table.rows[self._table.filled - 1, _SECONDS] += np.asarray(row)[_SECONDS]

    def steps(self, start: int = 0) -> Steps:
        """Returns a copy of the rows from `start` on."""
        table, scratch, stride, summed = self._shown
        rows = table.filled if stride == 1 else summed
        parts = [table.rows[start:rows]]
        if stride > 1:
            parts.append(_merged(scratch.groups(stride))[max(start - rows, 0) :])
        return Steps.of_table(np.concatenate(parts))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._table.filled + self._scratch.filled // self.stride

    def finish(self) -> None:
        """Adds the last steps, too few for a whole row, as a row at the run's end."""
        self._flush()
        if self._scratch.filled:
            self._put(_merged(self._scratch.rows[None, : self._scratch.filled]))

    def _gather(self, row: Sequence[float]) -> int:
        """Adds one step once rows stand for several."""
        if self._scratch.filled >= self._scratch.room:
            self._flush()
        if self.rows >= self._capacity:
            self._flush()
            self._thin()
        scratch = self._scratch
        _PACK.pack_into(scratch.memory, scratch.filled * _PACK.size, *row)
        scratch.filled += 1
        return -1

    def _flush(self) -> None:
        """Sums the waiting steps into rows; steps too few for a whole row go on waiting."""
        groups = self._scratch.groups(self.stride)
        if len(groups):
            self._put(_merged(groups), self._scratch.rows[groups.shape[0] * self.stride : self._scratch.filled])

    def _put(self, rows: npt.NDArray[np.float64], waiting: npt.NDArray[np.float64] | None = None) -> None:
        """Adds summed rows; `waiting` steps go to a new block, as readers may still use the old one."""
        table = self._table
        table.rows[table.filled : table.filled + len(rows)] = rows
        table.filled += len(rows)
        self._scratch = _Block(max(BLOCK, self.stride), waiting)
        self._publish()

    def _grown(self) -> _Block:
        """Returns the table after its room for rows was doubled."""
        self._table = _Block(min(2 * self._table.filled, self._capacity), self._table.rows)
        self._publish()
        return self._table

    def _thin(self) -> None:
        """Sums neighbouring rows in pairs, into a new array, so that a reader's slice stays valid."""
        self._table = _Block(self._capacity, _merged(self._table.rows.reshape(-1, 2, _COLUMNS)))
        self.stride *= 2
        self._scratch = _Block(max(BLOCK, self.stride))
        self._publish()
        self.generation += 1  # last: a reader that sees it starts over, and must then find the new rows

    def _publish(self) -> None:
        """Publishes the blocks to readers in one assignment, so that no row is seen in two blocks at once."""
        self._shown = self._table, self._scratch, self.stride, self._table.filled


class _Block:
    """A block of rows that are filled in order, and the memory to pack values into."""

    __slots__ = ("filled", "memory", "room", "rows")

    def __init__(self, room: int, begin: npt.NDArray[np.float64] | None = None) -> None:
        """Args: room: number of rows that fit. begin: the first rows."""
        self.rows: npt.NDArray[np.float64] = np.empty((room, _COLUMNS))
        flat: Any = self.rows.reshape(-1).view(np.uint8)  # an array is a buffer; its types say so only from 3.12 on
        self.memory = memoryview(flat)
        self.room, self.filled = room, 0
        if begin is not None:
            self.rows[: len(begin)] = begin
            self.filled = len(begin)

    def groups(self, stride: int) -> npt.NDArray[np.float64]:
        """Returns the filled rows in whole groups of `stride`; shape (groups, stride, columns)."""
        whole = self.filled // stride * stride
        return self.rows[:whole].reshape(-1, stride, _COLUMNS)


def _merged(groups: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sums the rows of each group; shape (groups, rows, columns) -> (groups, columns)."""
    merged: npt.NDArray[np.float64] = groups.sum(axis=1)
    device = groups[:, :, _GPU]
    # A row without device readings must not make its neighbour's readings "not measured".
    merged[:, _GPU] = np.where(np.isnan(device).all(axis=1), np.nan, np.nansum(device, axis=1))
    merged[:, _FIRST_OF_ROW] = groups[:, 0, _FIRST_OF_ROW]
    return merged
