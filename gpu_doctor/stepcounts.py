"""What is counted in a step besides time, and how a row of the step table is made of it."""

from __future__ import annotations

from typing import Final

from gpu_doctor.phases import EVALUATION, LOSS, SYNC

_NAN: Final = float("nan")


class Counts:
    """Counts of a step, or of the part of it since an optimizer last stepped."""

    __slots__ = ("batches", "edge_ns", "forward_samples", "pageable", "samples", "transfer_bytes", "transfers")

    def __init__(self) -> None:
        self.samples = 0.0
        self.forward_samples = _NAN
        """Batch dimension of the first trained forward: the step's samples where nothing was pulled."""
        self.batches = self.edge_ns = 0
        self.transfers = self.transfer_bytes = self.pageable = 0

    def add(self, later: Counts) -> None:
        """Takes in what came later in the same step."""
        self.samples += later.samples
        if self.forward_samples != self.forward_samples:
            self.forward_samples = later.forward_samples
        self.batches += later.batches
        self.edge_ns += later.edge_ns
        self.transfers += later.transfers
        self.transfer_bytes += later.transfer_bytes
        self.pageable += later.pageable


def row_of(
    begin_s: float, wall_s: float, acc: list[int], counts: Counts, *, kind: float, cpu_s: float, epoch: int, sync: bool
) -> list[float]:
    """One step in the order of `steps.STEP_COLUMNS`; `sync` says whether waits for a device were measured."""
    return [
        begin_s,
        wall_s,
        1.0,
        kind,
        counts.samples if counts.batches else counts.forward_samples,
        float(counts.batches),
        *(ns * 1e-9 for ns in acc[:SYNC]),
        acc[SYNC] * 1e-9 if sync else _NAN,
        acc[EVALUATION] * 1e-9,
        acc[LOSS] * 1e-9,
        counts.edge_ns * 1e-9,
        cpu_s,
        float(counts.transfers),
        float(counts.transfer_bytes),
        float(counts.pageable),
        *(_NAN, _NAN, _NAN, 0.0),
        float(max(epoch, 0)),
    ]
