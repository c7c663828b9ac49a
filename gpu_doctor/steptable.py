"""The rows of a run in bounded memory: steps are kept one by one until there are too many, then summed by twos.

The stride doubles whenever the table is full, so a row stands for 1, 2, 4, ... steps, evenly over the whole run: early
and late parts are both kept, every sum stays exact, and ten million steps fit in some 25 MB at constant cost a step.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gpu_doctor.recording import STEP_COLUMNS, Steps

CAPACITY: Final = 1 << 17
FIRST_ROWS: Final = 4096
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
        self._table: npt.NDArray[np.float64] = np.empty((min(FIRST_ROWS, capacity), len(STEP_COLUMNS)))
        self._rows = 0
        self._open: npt.NDArray[np.float64] | None = None
        self._open_steps = 0
        self.stride = 1
        self.generation = 0
        """Counts the thinnings; row numbers of an older generation mean nothing."""

    def append(self, row: list[float]) -> int:
        """Adds one step (values in the order of STEP_COLUMNS).

        Returns:
            The number of its row, to hand device readings in later; -1 while rows stand for several steps.
        """
        if self._rows == self._capacity:
            self._thin()
        if self.stride > 1:
            self._gather(row)
            return -1
        self._put(np.asarray(row))
        return self._rows - 1

    def add_device(self, row: int, generation: int, gpu_s: float, gap_s: float, queue_empty: float) -> None:
        """Adds the device readings of one step, known some steps after it ended, to its row.

        Where the row is gone (thinned since), they go to the newest row: the sums stay exact.
        """
        if row < 0 or generation != self.generation:
            row = self._rows - 1
        if row < 0:
            return
        for column, value in zip(_GPU, (gpu_s, gap_s, queue_empty, 1.0), strict=True):
            now = self._table[row, column]
            self._table[row, column] = value if np.isnan(now) else now + value

    def extend(self, row: list[float]) -> None:
        """Adds the host seconds of `row` to the newest row: what came right after its last step and belongs to none."""
        if self._rows:
            self._table[self._rows - 1, _SECONDS] += np.asarray(row)[_SECONDS]

    def steps(self, start: int = 0) -> Steps:
        """The rows from `start` on, copied, so that a reader may keep them."""
        rows, table = self._rows, self._table
        return Steps.of_table(table[start:rows].copy())

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._rows

    def finish(self) -> None:
        """Puts the open part of a gathered row down, at the run's end."""
        if self._open is not None:
            row, self._open, self._open_steps = self._open, None, 0
            self._put(row)

    def _gather(self, row: list[float]) -> None:
        if self._open is None:
            self._open = np.asarray(row)
        else:
            first = self._open[_FIRST_OF_ROW]
            self._open = self._open + np.asarray(row)
            self._open[_FIRST_OF_ROW] = first
        self._open_steps += 1
        if self._open_steps >= self.stride:
            self.finish()

    def _put(self, row: npt.NDArray[np.float64]) -> None:
        if self._rows == len(self._table):
            grown = np.empty((min(2 * self._rows, self._capacity), self._table.shape[1]))
            grown[: self._rows] = self._table
            self._table = grown
        self._table[self._rows] = row
        self._rows += 1

    def _thin(self) -> None:
        """Sums neighbouring rows; a new array is put in place so that a reader's slice stays whole."""
        pairs = self._table.reshape(-1, 2, self._table.shape[1])
        merged = pairs.sum(axis=1)
        for column in _GPU:
            # A row without device readings must not turn its neighbour's into "not measured".
            both = pairs[:, :, column]
            merged[:, column] = np.where(np.isnan(both).all(axis=1), np.nan, np.nansum(both, axis=1))
        merged[:, _FIRST_OF_ROW] = pairs[:, 0, _FIRST_OF_ROW]
        table = np.empty_like(self._table)
        table[: len(merged)] = merged
        self._table, self._rows = table, len(merged)
        self.stride *= 2
        self.generation += 1
