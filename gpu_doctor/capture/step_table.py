"""The rows of a run in bounded memory: steps are kept one by one until there are too many, then summed by twos.

The stride doubles whenever the table is full, so a row stands for 1, 2, 4, ... steps, evenly over the whole run: early
and late parts are both kept, every sum stays exact, and ten million steps fit in some 25 MB at constant cost a step.

A step's values are packed straight into the array's memory: numpy costs microseconds a call, however little it is asked
for, and boxed numbers that stay around cost the loop its cache.
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
"""Steps that wait to be summed in one go, once rows stand for several; a power of two, as every stride is."""
_COLUMNS: Final = len(STEP_COLUMNS)
_PACK: Final = struct.Struct(f"{_COLUMNS}d")
_FIRST_OF_ROW: Final = [STEP_COLUMNS.index(name) for name in ("start_s", "kind", "epoch")]
"""Columns of which a merged row keeps its first step's value; all others are sums."""
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
"""What the device's clock gives of a step, NaN in it = not read."""
_GPU: Final = [STEP_COLUMNS.index(name) for name in (*DEVICE_COLUMNS, "device_steps")]


class StepTable:
    """Append-only for one writing thread; readers on other threads slice `steps()` at any time."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """`capacity`: rows at most (even); the memory is taken as it is needed."""
        self._capacity = capacity
        self.stride = 1
        self.generation = 0
        """Counts the thinnings; row numbers of an older generation mean nothing."""
        self._table = _Block(min(FIRST_ROWS, capacity))
        self._scratch = _Block(BLOCK)
        """Steps of rows that stand for several, until they are summed."""
        self._publish()

    def append(self, row: Sequence[float]) -> int:
        """Adds one step (values in the order of STEP_COLUMNS).

        Returns:
            The number of its row, to hand device readings in later; -1 while rows stand for several steps.
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
        """Adds the device readings of one step (in the order of DEVICE_COLUMNS), known some steps later, to its row.

        Where the row is gone (thinned since), they go to the newest row: the sums stay exact.
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
        """Adds the host seconds of `row` to the newest row: what came right after its last step and belongs to none."""
        self._flush()
        if self._table.filled:
            self._table.rows[self._table.filled - 1, _SECONDS] += np.asarray(row)[_SECONDS]

    def steps(self, start: int = 0) -> Steps:
        """The rows from `start` on, copied, so that a reader may keep them."""
        table, scratch, stride, summed = self._shown
        rows = table.filled if stride == 1 else summed
        parts = [table.rows[start:rows]]
        if stride > 1:
            parts.append(_merged(scratch.groups(stride))[max(start - rows, 0) :])
        return Steps.of_table(np.concatenate(parts))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._table.filled + self._scratch.filled // self.stride

    def finish(self) -> None:
        """Puts the open part of a gathered row down, at the run's end."""
        self._flush()
        if self._scratch.filled:
            self._put(_merged(self._scratch.rows[None, : self._scratch.filled]))

    def _gather(self, row: Sequence[float]) -> int:
        """Adds one step where rows stand for several."""
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
        """Sums what waits into rows, but for the open part of one."""
        groups = self._scratch.groups(self.stride)
        if len(groups):
            self._put(_merged(groups), self._scratch.rows[groups.shape[0] * self.stride : self._scratch.filled])

    def _put(self, rows: npt.NDArray[np.float64], left: npt.NDArray[np.float64] | None = None) -> None:
        """Adds summed rows; what is `left` goes on waiting in a new block: readers may look at the old one."""
        table = self._table
        table.rows[table.filled : table.filled + len(rows)] = rows
        table.filled += len(rows)
        self._scratch = _Block(max(BLOCK, self.stride), left)
        self._publish()

    def _grown(self) -> _Block:
        self._table = _Block(min(2 * self._table.filled, self._capacity), self._table.rows)
        self._publish()
        return self._table

    def _thin(self) -> None:
        """Sums neighbouring rows; a new array is put in place so that a reader's slice stays whole."""
        self._table = _Block(self._capacity, _merged(self._table.rows.reshape(-1, 2, _COLUMNS)))
        self.stride *= 2
        self._scratch = _Block(max(BLOCK, self.stride))
        self._publish()
        self.generation += 1  # last: a reader that sees it starts again, and must find the thinned rows then

    def _publish(self) -> None:
        """What readers see, in one assignment: rows that move from one block to another are never seen twice."""
        self._shown = self._table, self._scratch, self.stride, self._table.filled


class _Block:
    """Rows that are filled one after the other, and their memory to pack values into."""

    __slots__ = ("filled", "memory", "room", "rows")

    def __init__(self, room: int, begin: npt.NDArray[np.float64] | None = None) -> None:
        """`room`: rows there can be. begin: the first of them."""
        self.rows: npt.NDArray[np.float64] = np.empty((room, _COLUMNS))
        flat: Any = self.rows.reshape(-1).view(np.uint8)  # an array is a buffer, which its types say from 3.12 on only
        self.memory = memoryview(flat)
        self.room, self.filled = room, 0
        if begin is not None:
            self.rows[: len(begin)] = begin
            self.filled = len(begin)

    def groups(self, stride: int) -> npt.NDArray[np.float64]:
        """The filled rows in whole groups of `stride`; shape (groups, stride, columns)."""
        whole = self.filled // stride * stride
        return self.rows[:whole].reshape(-1, stride, _COLUMNS)


def _merged(groups: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The rows of each group summed; shape (groups, rows, columns) -> (groups, columns)."""
    merged: npt.NDArray[np.float64] = groups.sum(axis=1)
    device = groups[:, :, _GPU]
    # A row without device readings must not turn its neighbour's into "not measured".
    merged[:, _GPU] = np.where(np.isnan(device).all(axis=1), np.nan, np.nansum(device, axis=1))
    merged[:, _FIRST_OF_ROW] = groups[:, 0, _FIRST_OF_ROW]
    return merged
