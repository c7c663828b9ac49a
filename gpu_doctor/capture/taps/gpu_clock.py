"""The device's clock on a CUDA device: events from a pool, put into the current stream, queried, never waited for.

GPU: not yet run on one. The logic around it (gap, exposed wait, empty queue) is proved on a simulated queue in tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from threading import get_ident
from typing import Any, Final, TypeAlias

import torch

from gpu_doctor.capture.gpu.devicemarks import StepMarks
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.taps.tap import TapScope

FORWARDS: Final = 64
"""A loop of which so many forwards ran elsewhere is not asked any more: taps cannot rest while somebody hears these."""
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
        mark = pool.pop() if pool else (index, torch.cuda.Event(enable_timing=True))
        mark[1].record(stream)
        return mark

    def done(self, mark: _Mark) -> bool:
        """`event.query()`: true once the stream has passed it."""
        return bool(mark[1].query())

    def seconds(self, begin: _Mark, end: _Mark) -> float:
        """`elapsed_time` in seconds (resolution about 0.5 us)."""
        return float(begin[1].elapsed_time(end[1])) * 1e-3 if begin[0] == end[0] else float("nan")

    def free(self, mark: _Mark) -> None:
        """Back into its device's pool."""
        self._pools.setdefault(mark[0], []).append(mark)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Gives the ledger a device clock once a module or an optimizer on a GPU is heard; takes it away at the end."""
    recorder, ledger = scope.recorder, scope.recorder.ledger
    given, left = False, FORWARDS

    def take_away() -> None:
        if ledger.windows is not None:
            ledger.steady.spent_ns += ledger.windows.spent_ns  # asked for when the taps are off, too
        ledger.marks = ledger.windows = None

    def failed(error: Exception) -> None:
        take_away()
        recorder.note(f"GPU timing failed and was switched off after {ledger.step_count} steps: {error}")

    def give() -> None:
        nonlocal given
        if not given:
            given = True
            ledger.marks = StepMarks(CudaClock(), ledger.table, failed, recorder.clock)
            ledger.windows = DeviceWindows(ledger.marks, recorder.clock())

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        forget()
        if any(p.is_cuda for group in optimizer.param_groups for p in group["params"]):
            give()

    def heard(module: torch.nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """Of a loop without an optimizer, a forward's output or its module's first parameter says where it runs."""
        nonlocal left
        left -= 1
        try:
            on_cuda = getattr(output, "is_cuda", False) or any(p.is_cuda for p in islice(module.parameters(), 1))
        except Exception:  # the output is the user's own, and so may be what reads its attributes
            on_cuda = False
        if on_cuda:
            give()
            scope.patches.wrap(torch.no_grad, "__exit__", leaving)
        if on_cuda or left <= 0:
            forget()

    def leaving(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __exit__(self: Any, *error: Any) -> None:
            original(self, *error)
            if ledger.owes and get_ident() == recorder.thread:
                ledger.update_ended()

        return __exit__

    def forget() -> None:
        if heard in scope.heard:
            scope.heard.remove(heard)

    scope.optimized.append(first_step)
    if scope.accelerated:
        scope.heard.append(heard)
    try:
        yield
    finally:
        forget()
        if ledger.windows is not None:
            ledger.windows.end()
        take_away()
