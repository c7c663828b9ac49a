"""The losses of a run, kept as they are until it is over: no step waits for one to be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import Losses, Steps
from gpu_doctor.recording.steps import samples_before

DENSE_LOSSES: Final = 256
"""The loss of so many steps is kept one by one, later of every SPARSE_LOSSES-th."""
SPARSE_LOSSES: Final = 64
MOST_LOSSES: Final = 4096
"""Losses kept at most (a detached one holds about half a kilobyte); of the later ones every other goes then."""


class KeptLosses:
    """The losses that are kept: one writer, the training thread."""

    def __init__(self) -> None:
        self._offered: deque[tuple[int, Any]] = deque(maxlen=MOST_LOSSES)
        """The losses of backwards whose step has not ended, by rising numbers."""
        self._number = 0
        self._kept: list[tuple[int, Any]] = []
        self._every = SPARSE_LOSSES
        self._read: Callable[[list[Any]], list[float]] = list

    def offer(self, loss: Any) -> int:
        """Takes the detached loss of a backward that begins; returns its number."""
        self._number += 1
        self._offered.append((self._number, loss))
        return self._number

    def keep(self, step: int, number: int) -> None:
        """The loss of this number is its step's: those of earlier backwards are no step's any more."""
        offered = self._offered
        while offered and offered[0][0] <= number:
            found, loss = offered.popleft()
            if found == number:
                self._kept.append((step, loss))
        if len(self._kept) >= MOST_LOSSES:
            self._kept[DENSE_LOSSES:] = self._kept[DENSE_LOSSES::2]
            self._every *= 2

    def next_after(self, steps: int) -> int:
        """Which step's loss is to be kept next, after so many steps."""
        return steps + 1 if steps < DENSE_LOSSES else ((steps - 1) // self._every + 1) * self._every + 1

    def read_by(self, read: Callable[[list[Any]], list[float]]) -> None:
        """`read` reads them; they are read as they are where nobody says how."""
        self._read = read

    def read(self, steps: Steps, note: Callable[[str], None]) -> Losses:
        """All of them, which are kept no longer; may wait for a device.

        Args:
            steps: of the run.
            note: takes a sentence where they cannot be read.
        """
        kept, self._kept = self._kept, []
        if not kept:
            return Losses()
        try:
            values = np.asarray(self._read([loss for _, loss in kept]), dtype=np.float64)
        except Exception as error:
            note(f"The losses could not be read: {error}")
            return Losses()
        at = np.asarray([step for step, _ in kept], dtype=np.float64)
        return Losses(step=at, samples=samples_before(steps, at), value=values)
