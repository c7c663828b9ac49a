"""Sums of the padding in some of a loader's batches, as the loader returns them; tensors on a device are not read."""

from __future__ import annotations

from typing import Any

from gpu_doctor.capture.describe.padding import Padded, cpu_tensors, padded_in
from gpu_doctor.recording.setup import Padding


class PaddingSums:
    """Sums of the padding in the sampled batches of one loader, for each padded tensor."""

    def __init__(self) -> None:
        self._batches = 0
        """Number of sampled batches with tensors on the CPU."""
        self._seen: dict[str, Padding] = {}
        """Sums by the tensor's name."""

    def add(self, batch: Any) -> None:
        """Adds the padding of a sampled batch to the sums."""
        tensors = cpu_tensors(batch)
        self._batches += bool(tensors)
        for padded in padded_in(tensors):
            self._seen[padded.name] = _added(self._seen.get(padded.name), padded)

    def facts(self) -> tuple[Padding, ...] | None:
        """Returns the sums of each padded tensor, those in most batches first; None if no batch was sampled."""
        if not self._batches:
            return None
        ordered = sorted(self._seen.copy().values(), key=lambda sums: -sums.batches)
        return tuple(Padding(**{**vars(sums), "looked_at": self._batches}) for sums in ordered)


def _added(before: Padding | None, padded: Padded) -> Padding:
    """Returns the sums with one more padded tensor; `before` is None for the first."""
    rows, least, most = len(padded.lengths), int(padded.lengths.min()), int(padded.lengths.max())
    length = padded.length
    sums = before or Padding(padded.name, shortest=least, longest=most, least_length=length, most_length=length)
    return Padding(
        name=padded.name,
        told_by=padded.told_by,
        batches=sums.batches + 1,
        rows=sums.rows + rows,
        positions=sums.positions + rows * length,
        needed=sums.needed + rows * most,
        real=sums.real + int(padded.lengths.sum()),
        shortest=min(sums.shortest, least),
        longest=max(sums.longest, most),
        least_length=min(sums.least_length, length),
        most_length=max(sums.most_length, length),
    )
