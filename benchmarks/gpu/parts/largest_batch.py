"""The largest batch that `case.largest_batch` answers, beside the truth: batches that run, and that run out of memory.

The card is made small, by torch's own limit for this process, so that a search takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

import gpu_doctor
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.timing import emptied
from gpu_doctor.trials.largest_batch import CardMemory, largest_batch
from gpu_doctor.trials.results import MARGIN
from tests.support import memory_cell
from tests.support.largest_batch_parts import GIB, Card, SimulatedCase

LIMIT: Final = 8 << 30
NEAR: Final = 0.9
"""The answer reaches so much of what is possible within the margin, and never more than that."""
STEP: Final = 8
"""The truth is known to so many samples."""
WRITTEN: Final = 16


class Small(CardMemory):
    """A card of LIMIT bytes."""

    def limit_bytes(self) -> float:
        """See `Memory`."""
        return float(LIMIT)


def run(stage: Stage) -> None:
    """One row: the answer beside the truth."""
    stage.row("a card of 8 GiB", _simulated if stage.rehearse else _real)


def largest(fits: Callable[[int], bool], begin: int) -> int:
    """The largest number for which that is true, to STEP: `begin` is one for which it is."""
    low, high = begin, 2 * begin
    while fits(high):
        low, high = high, 2 * high
    while high - low > STEP:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _real() -> Row:
    _, total = torch.cuda.mem_get_info()
    if total < 1.5 * LIMIT:
        return row(f"the card has only {total / GIB:.0f} GiB", None)
    emptied("cuda")
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    try:
        names = memory_cell.space("cuda", WRITTEN)
        case = gpu_doctor.case(memory_cell.CELL, names)
        case.run()
        found = case.largest_batch(memory=Small("cuda:0"), seconds=60.0)
        if found.batch_size is None:
            return row(f"no answer: {found.reason}", False)
        within = largest(lambda batch: _peak(names, batch) <= (1.0 - MARGIN) * LIMIT, WRITTEN)
        at_all = largest(lambda batch: _peak(names, batch) < float("inf"), within)
        return judged(found, within, at_all)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        emptied("cuda")


def _peak(names: dict[str, Any], batch: int) -> float:
    """Bytes that the batch needs; infinite where it does not fit."""
    try:
        return float(memory_cell.peak_bytes(names, batch))
    except torch.cuda.OutOfMemoryError:
        pass
    names["opt"].zero_grad()  # outside of the handler: the error's frames hold the batch
    emptied("cuda")
    return float("inf")


def _simulated() -> Row:
    card = Card(4.0, 100.0)
    found = largest_batch(SimulatedCase(card, WRITTEN), memory=card)
    within = largest(lambda batch: card.needs(batch) <= (1.0 - MARGIN) * card.total, WRITTEN)
    return judged(found, within, largest(lambda batch: card.needs(batch) <= card.total, within))


def judged(found: Any, within: int, at_all: int) -> Row:
    """The answer beside the truth."""
    tried = ", ".join(f"{size}{'' if peak else ' (out of memory)'}" for size, peak in found.tried)
    first = found.tried[0][0] if found.tried else None
    said = (
        f"answered {found.batch_size} after trials of {tried}; by running out of memory: {at_all} run, "
        f"{within} of them with {100 * MARGIN:.0f} % left free"
    )
    good = found.batch_size is not None and NEAR * within - STEP <= found.batch_size <= within + STEP
    return row(said, good, answered=found.batch_size, first=first, within=within, at_all=at_all, tried=found.tried)
