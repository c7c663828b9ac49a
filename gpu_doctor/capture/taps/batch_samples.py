"""Samples a loader's batches as the loader returns them: how much is padding, and whether the loop keeps them alive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_doctor.capture.taps.batch_marks import BatchMarks
from gpu_doctor.capture.taps.padding import PaddingSums

RARER: Final = 8
"""Inverse of the growth between two sampled batches: the next is sampled after an eighth more, so 20 of 45 batches are
sampled, and 70 of 100 000."""


class BatchSamples:
    """Samples of the batches of one loader."""

    __slots__ = ("_batches", "_note", "marks", "padding", "remaining")

    def __init__(
        self,
        note: Callable[[str], None],
        names: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> None:
        """Begins without samples.

        Args:
            note: Takes a sentence about a batch that cannot be read.
            names: Returns the names that the loop runs with.
        """
        self._note = note
        self.remaining = 0
        """Batches until the next sample; the tap counts it down."""
        self._batches = 0
        self.padding, self.marks = PaddingSums(), BatchMarks(names)

    def add(self, batch: Any) -> None:
        """Samples a batch; no more follow after one that cannot be read, such as an instance of a user's class."""
        self._batches += 1
        number, self.remaining = self._batches, self._batches // RARER
        self._batches += self.remaining
        try:
            self.padding.add(batch)
            self.marks.add(batch, number)
        except Exception as error:
            self.remaining = sys.maxsize
            self._note(f"The batches could not be checked for padding and for what keeps them alive: {error}")
