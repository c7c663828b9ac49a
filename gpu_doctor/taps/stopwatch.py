"""The device's clock on a CUDA device: events from a pool, put into the current stream, queried, never waited for.

GPU: not yet run on one. The logic around it (gap, exposed wait, empty queue) is proved on a simulated queue in tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

from gpu_doctor.devicemarks import StepMarks
from gpu_doctor.taps.tap import TapScope

_Mark: TypeAlias = tuple[int, torch.cuda.Event]
"""The number of the device, and the event."""


class CudaClock:
    """A DeviceClock over CUDA events with timing.

    An event belongs to the device that it was first recorded on, and only two of one device can be compared.
    """

    def __init__(self) -> None:
        self._pools: dict[int, list[_Mark]] = {}

    def ready(self) -> bool:
        """While a graph is captured an event would become part of it, and a query would spoil the capture."""
        return not torch.cuda.is_current_stream_capturing()

    def mark(self) -> _Mark:
        """Records an event on the current stream of the current device."""
        stream = torch.cuda.current_stream()
        index = stream.device_index
        pool = self._pools.get(index)
        mark = pool.pop() if pool else (index, torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        mark[1].record(stream)
        return mark

    def done(self, mark: _Mark) -> bool:
        """`event.query()`: true once the stream has passed it."""
        return bool(mark[1].query())  # type: ignore[no-untyped-call]

    def seconds(self, begin: _Mark, end: _Mark) -> float:
        """`elapsed_time` in seconds (resolution about 0.5 us)."""
        return float(begin[1].elapsed_time(end[1])) * 1e-3 if begin[0] == end[0] else float("nan")

    def free(self, mark: _Mark) -> None:
        """Back into its device's pool."""
        self._pools.setdefault(mark[0], []).append(mark)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Gives the ledger a device clock once an optimizer owns CUDA parameters; takes it away at the end."""
    recorder, ledger = scope.recorder, scope.recorder.ledger
    given = False

    def failed(error: Exception) -> None:
        ledger.marks = None
        recorder.note(f"The GPU's own clock failed and was taken off after {ledger.step_count} steps: {error}")

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        nonlocal given
        if not given and any(p.is_cuda for group in optimizer.param_groups for p in group["params"]):
            given = True
            ledger.marks = StepMarks(CudaClock(), ledger.table, failed)

    scope.optimized.append(first_step)
    try:
        yield
    finally:
        if ledger.marks is not None:
            ledger.marks.read()
            ledger.marks = None
