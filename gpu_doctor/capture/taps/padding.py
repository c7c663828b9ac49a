"""Looks at some of a loader's batches for padding, as the loader hands them over: what is on a device is not read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.describe.padding import Padded, cpu_tensors, padded_in
from gpu_doctor.recording.setup import Padding

RARER: Final = 8
"""After the first batches one is looked at whenever an eighth more have gone by: 20 of 45, 70 of 100 000."""


class PaddingLooks:
    """What was seen of the batches of one loader."""

    __slots__ = ("_batches", "_clock", "_looked", "_note", "_seen", "left", "spent_ns")

    def __init__(self, clock: Callable[[], int], note: Callable[[str], None]) -> None:
        """Args: clock: in ns, for what the looks cost. note: hears of a batch that cannot be read."""
        self._clock, self._note = clock, note
        self.left = 0
        """Batches until the next look; the tap counts it down."""
        self.spent_ns = 0
        self._batches = self._looked = 0
        self._seen: dict[str, Padding] = {}

    def look(self, batch: Any) -> None:
        """One of the batches that are looked at; the last one, if it cannot be read, as a class of the user's may."""
        began = self._clock()
        self._batches += 1
        self.left = self._batches // RARER
        self._batches += self.left
        try:
            tensors = cpu_tensors(batch)
            self._looked += bool(tensors)
            for one in padded_in(tensors):
                self._seen[one.name] = _added(self._seen.get(one.name), one)
        except Exception as error:
            self.left = sys.maxsize
            self._note(f"Padding could not be looked for in the batches: {error}")
        self.spent_ns += self._clock() - began

    def facts(self) -> tuple[Padding, ...] | None:
        """Of each padded tensor, those in most batches first; None where no batch was looked at."""
        if not self._looked:
            return None
        ordered = sorted(self._seen.copy().values(), key=lambda one: -one.batches)
        return tuple(Padding(**{**vars(one), "looked_at": self._looked}) for one in ordered)


def _added(before: Padding | None, one: Padded) -> Padding:
    rows, least, most = len(one.lengths), int(one.lengths.min()), int(one.lengths.max())
    had = before or Padding(one.name, shortest=least, longest=most, least_length=one.length, most_length=one.length)
    return Padding(
        name=one.name,
        told_by=one.told_by,
        batches=had.batches + 1,
        rows=had.rows + rows,
        positions=had.positions + rows * one.length,
        needed=had.needed + rows * most,
        real=had.real + int(one.lengths.sum()),
        shortest=min(had.shortest, least),
        longest=max(had.longest, most),
        least_length=min(had.least_length, one.length),
        most_length=max(had.most_length, one.length),
    )
