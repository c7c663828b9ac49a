"""The device's clock on a CUDA device: events from a pool, put into the current stream, queried, never waited for.

GPU: not yet run on one. The logic around it (gap, exposed wait, empty queue) is proved on a simulated queue in tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpu_doctor.devicemarks import StepMarks
from gpu_doctor.taps.tap import TapScope


class CudaClock:
    """A DeviceClock over CUDA events with timing."""

    def __init__(self) -> None:
        self._pool: list[torch.cuda.Event] = []

    def mark(self) -> Any:
        """Records an event on the current stream of the current device."""
        event = self._pool.pop() if self._pool else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def done(self, mark: Any) -> bool:
        """`event.query()`: true once the stream has passed it."""
        return bool(mark.query())

    def seconds(self, begin: Any, end: Any) -> float:
        """`elapsed_time` in seconds (resolution about 0.5 us)."""
        return float(begin.elapsed_time(end)) * 1e-3

    def free(self, mark: Any) -> None:
        """Back into the pool."""
        self._pool.append(mark)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Gives the ledger a device clock once an optimizer owns CUDA parameters; takes it away at the end."""
    ledger = scope.recorder.ledger

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        if ledger.marks is None and any(p.is_cuda for group in optimizer.param_groups for p in group["params"]):
            ledger.marks = StepMarks(CudaClock(), ledger.table)

    scope.optimized.append(first_step)
    try:
        yield
    finally:
        if ledger.marks is not None:
            ledger.marks.read()
            ledger.marks = None
