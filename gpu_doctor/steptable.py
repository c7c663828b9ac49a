"""The rows of a run in bounded memory: steps are kept one by one until there are too many, then summed by twos.

The stride doubles whenever the table is full, so a row stands for 1, 2, 4, ... steps, evenly over the whole run: early
and late parts are both kept, every sum stays exact, and ten million steps fit in some 25 MB at constant cost a step.

A new step is put at the end of a plain list and goes into the array with a block of others: numpy costs microseconds
a call, however little it is asked for.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.recording import STEP_COLUMNS, Steps

CAPACITY: Final = 1 << 17
FIRST_ROWS: Final = 4096
BLOCK: Final = 64
"""Steps that wait in the list before they go into the array; a power of two, as every stride is."""
_COLUMNS: Final = len(STEP_COLUMNS)
_FIRST_OF_ROW: Final = [STEP_COLUMNS.index(name) for name in ("start_s", "kind", "epoch")]
"""Columns of which a merged row keeps its first step's value; all others are sums."""
_SECONDS: Final = [
    i for i, name in enumerate(STEP_COLUMNS) if name.endswith("_s") and name not in ("start_s", "gpu_s", "gpu_gap_s")
]
_GPU: Final = [STEP_COLUMNS.index(name) for name in ("gpu_s", "gpu_gap_s", "queue_empty", "device_steps")]


class StepTable:
    """Append-only for one writing thread; readers on other threads slice `steps()` at any time."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """`capacity`: rows at most (even); the memory is taken as it is needed."""
        self._capacity = capacity
        self._table: npt.NDArray[np.float64] = np.empty((min(FIRST_ROWS, capacity), _COLUMNS))
        self._rows = 0
        self._pending: list[list[float]] = []
        self.stride = 1
        self.generation = 0
        """Counts the thinnings; row numbers of an older generation mean nothing."""
        self._publish()

    def append(self, row: list[float]) -> int:
        """Adds one step (values in the order of STEP_COLUMNS); the table keeps the list.

        Returns:
            The number of its row, to hand device readings in later; -1 while rows stand for several steps.
        """
        pending, stride = self._pending, self.stride
        waiting = len(pending)
        if waiting >= BLOCK and waiting >= stride:
            self._flush()
            pending, waiting = self._pending, 0
        if self._rows + waiting // stride >= self._capacity:
            self._flush()
            self._thin()
            pending, stride, waiting = self._pending, self.stride, 0
        pending.append(row)
        return self._rows + waiting if stride == 1 else -1

    def add_device(self, row: int, generation: int, gpu_s: float, gap_s: float, queue_empty: float) -> None:
        """Adds the device readings of one step, known some steps after it ended, to its row.

        Where the row is gone (thinned since), they go to the newest row: the sums stay exact.
        """
        if row < 0 or generation != self.generation:
            row = self.rows - 1
        if row < 0:
            return
        waiting = row - self._rows
        cells = self._table[row] if waiting < 0 else self._pending[(waiting + 1) * self.stride - 1]
        for column, value in zip(_GPU, (gpu_s, gap_s, queue_empty, 1.0), strict=True):
            now = cells[column]
            cells[column] = value if now != now else now + value

    def extend(self, row: list[float]) -> None:
        """Adds the host seconds of `row` to the newest row: what came right after its last step and belongs to none."""
        self._flush()
        if self._rows:
            self._table[self._rows - 1, _SECONDS] += np.asarray(row)[_SECONDS]

    def steps(self, start: int = 0) -> Steps:
        """The rows from `start` on, copied, so that a reader may keep them."""
        table, rows, pending, stride = self._shown
        late = _summed(pending[: len(pending) // stride * stride], stride)
        parts = [table[start:rows], late[max(start - rows, 0) :]]
        return Steps.of_table(np.concatenate(parts))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._rows + len(self._pending) // self.stride

    def finish(self) -> None:
        """Puts the open part of a gathered row down, at the run's end."""
        self._flush()
        if self._pending:
            self._put(_summed(self._pending, len(self._pending)), [])

    def _flush(self) -> None:
        """Puts what waits in the list into the array, but for the open part of a row."""
        pending, stride = self._pending, self.stride
        whole = len(pending) // stride * stride
        if whole:
            self._put(_summed(pending[:whole], stride), pending[whole:])

    def _put(self, rows: npt.NDArray[np.float64], left: list[list[float]]) -> None:
        """Adds rows to the array; `left` is what goes on waiting, in a new list: readers may hold the old one."""
        end = self._rows + len(rows)
        if end > len(self._table):
            grown = np.empty((min(max(2 * self._rows, end), self._capacity), self._table.shape[1]))
            grown[: self._rows] = self._table[: self._rows]
            self._table = grown
        self._table[self._rows : end] = rows
        self._rows, self._pending = end, left
        self._publish()

    def _thin(self) -> None:
        """Sums neighbouring rows; a new array is put in place so that a reader's slice stays whole."""
        merged = _merged(self._table[: self._rows].reshape(-1, 2, self._table.shape[1]))
        table = np.empty_like(self._table)
        table[: len(merged)] = merged
        self._table, self._rows = table, len(merged)
        self.stride *= 2
        self._publish()
        self.generation += 1  # last: a reader that sees it starts again, and must find the thinned rows then

    def _publish(self) -> None:
        """What readers see, in one assignment: rows that move from the list to the array are never seen twice."""
        self._shown = self._table, self._rows, self._pending, self.stride


def _summed(steps: list[list[float]], stride: int) -> npt.NDArray[np.float64]:
    """Rows of `stride` steps each; shape (len(steps) / stride, columns)."""
    rows = np.array(steps, dtype=np.float64).reshape(len(steps), _COLUMNS)
    return rows if stride == 1 else _merged(rows.reshape(-1, stride, _COLUMNS))


def _merged(groups: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The rows of each group summed; shape (groups, rows, columns) -> (groups, columns)."""
    merged: npt.NDArray[np.float64] = groups.sum(axis=1)
    device = groups[:, :, _GPU]
    # A row without device readings must not turn its neighbour's into "not measured".
    merged[:, _GPU] = np.where(np.isnan(device).all(axis=1), np.nan, np.nansum(device, axis=1))
    merged[:, _FIRST_OF_ROW] = groups[:, 0, _FIRST_OF_ROW]
    return merged
