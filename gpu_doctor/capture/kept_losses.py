"""The losses of a run, stored unread until it is over, so that no step waits for the device to read one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gpu_doctor.recording import Losses, Steps
from gpu_doctor.recording.steps import samples_before

DENSE_LOSSES: Final = 256
"""Number of first steps whose losses are all stored; later, every SPARSE_LOSSES-th is."""
SPARSE_LOSSES: Final = 64
MOST_LOSSES: Final = 4096
"""Most losses stored (a detached one takes about half a kilobyte); then every other later one is dropped."""


class KeptLosses:
    """The stored losses; only the training thread writes."""

    def __init__(self) -> None:
        self._offered: deque[tuple[int, Any]] = deque(maxlen=MOST_LOSSES)
        """Number and loss of each backward whose step has not ended, by rising numbers."""
        self._number = 0
        self._stored: list[tuple[int, Any]] = []
        self._every = SPARSE_LOSSES
        self._read: Callable[[list[Any]], list[float]] = list

    def offer(self, loss: Any) -> int:
        """Adds the detached loss of a backward that begins; returns the loss's number."""
        self._number += 1
        self._offered.append((self._number, loss))
        return self._number

    def keep(self, step: int, number: int) -> None:
        """Stores the loss of this number as its step's, and drops those of earlier backwards."""
        offered = self._offered
        while offered and offered[0][0] <= number:
            found, loss = offered.popleft()
            if found == number:
                self._stored.append((step, loss))
        if len(self._stored) >= MOST_LOSSES:
            self._stored[DENSE_LOSSES:] = self._stored[DENSE_LOSSES::2]
            self._every *= 2

    def next_after(self, steps: int) -> int:
        """Returns the number of the next step whose loss is to be stored, after `steps` steps."""
        return steps + 1 if steps < DENSE_LOSSES else ((steps - 1) // self._every + 1) * self._every + 1

    def read_by(self, read: Callable[[list[Any]], list[float]]) -> None:
        """Sets the function that turns losses into numbers; without one they are used as they are."""
        self._read = read

    def read(self, steps: Steps, note: Callable[[str], None]) -> Losses:
        """Reads all stored losses, and drops them; may wait for a device.

        Args:
            steps: the run's steps.
            note: called with a sentence if the losses cannot be read.
        """
        stored, self._stored = self._stored, []
        if not stored:
            return Losses()
        try:
            values = np.asarray(self._read([loss for _, loss in stored]), dtype=np.float64)
        except Exception as error:
            note(f"The losses could not be read: {error}")
            return Losses()
        at = np.asarray([step for step, _ in stored], dtype=np.float64)
        return Losses(step=at, samples=samples_before(steps, at), value=values)
