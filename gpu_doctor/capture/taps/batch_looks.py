"""Looks at some of a loader's batches, as the loader hands them over: for padding, and whether they are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_doctor.capture.taps.batch_marks import BatchMarks
from gpu_doctor.capture.taps.padding import PaddingSums

RARER: Final = 8
"""After the first batches one is looked at whenever an eighth more have gone by: 20 of 45, 70 of 100 000."""


class BatchLooks:
    """What was seen of the batches of one loader."""

    __slots__ = ("_batches", "_note", "left", "marks", "padding")

    def __init__(
        self,
        note: Callable[[str], None],
        names: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> None:
        """Looks at nothing yet.

        Args:
            note: hears of a batch that cannot be read.
            names: gives the names that the loop runs with.
        """
        self._note = note
        self.left = 0
        """Batches until the next look; the tap counts it down."""
        self._batches = 0
        self.padding, self.marks = PaddingSums(), BatchMarks(names)

    def look(self, batch: Any) -> None:
        """Looks at a batch; it is the last one if it cannot be read, as a class of the user's may be."""
        self._batches += 1
        number, self.left = self._batches, self._batches // RARER
        self._batches += self.left
        try:
            self.padding.add(batch)
            self.marks.add(batch, number)
        except Exception as error:
            self.left = sys.maxsize
            self._note(f"The batches could not be looked at for padding and for what keeps them: {error}")
