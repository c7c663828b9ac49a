"""The padding in some of a loader's batches, as the loader hands them over: what is on a device is not read."""

from __future__ import annotations

from typing import Any

from gpu_doctor.capture.describe.padding import Padded, cpu_tensors, padded_in
from gpu_doctor.recording.setup import Padding


class PaddingSums:
    """What was seen of the padding in the batches of one loader."""

    def __init__(self) -> None:
        self._looked = 0
        self._seen: dict[str, Padding] = {}

    def add(self, batch: Any) -> None:
        """One of the batches that are looked at."""
        tensors = cpu_tensors(batch)
        self._looked += bool(tensors)
        for one in padded_in(tensors):
            self._seen[one.name] = _added(self._seen.get(one.name), one)

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
