"""The losses of a run, kept as they are until it is over: no step waits for one to be read."""

from __future__ import annotations

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
        self._kept: list[tuple[int, Any]] = []
        self._every = SPARSE_LOSSES

    def keep(self, step: int, loss: Any) -> None:
        """The detached loss of a step."""
        self._kept.append((step, loss))
        if len(self._kept) >= MOST_LOSSES:
            self._kept[DENSE_LOSSES:] = self._kept[DENSE_LOSSES::2]
            self._every *= 2

    def next_after(self, steps: int) -> int:
        """Which step's loss is to be kept next, after so many steps."""
        return steps + 1 if steps < DENSE_LOSSES else ((steps - 1) // self._every + 1) * self._every + 1

    def read(self, read: Callable[[list[Any]], list[float]], steps: Steps) -> Losses:
        """All of them, which are kept no longer; may wait for a device.

        Args:
            read: what reads them.
            steps: of the run.
        """
        kept, self._kept = self._kept, []
        if not kept:
            return Losses()
        values = np.asarray(read([loss for _, loss in kept]), dtype=np.float64)
        at = np.asarray([step for step, _ in kept], dtype=np.float64)
        return Losses(step=at, samples=samples_before(steps, at), value=values)
