"""The clock of a CUDA device: events from a pool, recorded on the compute stream and queried, never waited for.

GPU: not yet run on one. The logic around it is proved on a simulated device in tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

import torch

from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.marks import MarkReader
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.taps.tap import TapScope

FORWARDS: Final = 64
"""Forwards off the GPU after which the search for a GPU ends."""
_Mark: TypeAlias = tuple[int, torch.cuda.Event]
"""Index of the device, and the event recorded on it."""


class CudaClock:
    """DeviceClock made of CUDA events with timing.

    An event belongs to the device that it was first recorded on; only events of the same device can be compared.
    """

    def __init__(self, card: int | None = None) -> None:
        """Begins without events; `card` is the index of the device that computes, None for the current one."""
        self._card = card
        self._pools: dict[int, list[_Mark]] = {}
        """Events to be used again, by device."""
        self._compute: torch.cuda.Stream | None = None

    def ready(self) -> bool:
        """Returns False during a graph capture: an event would become part of the graph, a query would spoil it."""
        return not torch.cuda.is_current_stream_capturing()

    def follow(self) -> None:
        """Takes the device's current stream as the one that computes."""
        self._compute = torch.cuda.current_stream(self._card)

    def aside(self) -> bool:
        """Returns True if the current stream is not the one that computes."""
        return self._compute is not None and bool(torch.cuda.current_stream(self._card) != self._compute)

    def mark(self, current: bool = False) -> _Mark:
        """Records an event on the compute stream, or on the current stream if `current`."""
        stream = self._stream() if not current else torch.cuda.current_stream(self._card)
        index = stream.device_index
        pool = self._pools.get(index)
        mark = pool.pop() if pool else (index, torch.cuda.Event(enable_timing=True))
        mark[1].record(stream)
        return mark

    def done(self, mark: _Mark) -> bool:
        """Returns True once the stream has passed the event; always False while a graph is captured."""
        return self.ready() and bool(mark[1].query())

    def idle(self) -> bool:
        """Returns True if the compute stream has no work left."""
        return bool(self._stream().query())

    def seconds(self, begin: _Mark, end: _Mark) -> float:
        """Returns the time between two marks in seconds (resolution about 0.5 us).

        NaN if they lie on different devices or `end` was not passed yet.
        """
        if begin[0] != end[0] or not end[1].query():
            return float("nan")
        return float(begin[1].elapsed_time(end[1])) * 1e-3

    def free(self, mark: _Mark) -> None:
        """Returns an event to its device's pool."""
        self._pools.setdefault(mark[0], []).append(mark)

    def _stream(self) -> torch.cuda.Stream:
        return self._compute if self._compute is not None else torch.cuda.current_stream(self._card)


def _other_card(tensors: Iterable[Any]) -> int | None:
    """Returns the lowest index of the cards that the tensors lie on; None if the current card is among them.

    A loop need not make the card that it uses the current one.
    """
    places = (getattr(tensor, "device", None) for tensor in tensors if tensor.is_cuda)
    cards: set[int] = {place.index for place in places if place is not None and place.index is not None}
    return None if torch.cuda.current_device() in cards else min(cards, default=None)


def tap(scope: TapScope) -> None:
    """Starts the device clock once a module, an optimizer or a graph on a GPU is seen; stops it when the run ends."""
    recorder, log = scope.recorder, scope.recorder.log
    remaining = FORWARDS

    def failed(error: Exception) -> None:
        """Leaves a note that the clock gives no more marks; `windows` removes it from the log when the step ends."""
        recorder.note(f"GPU timing failed and was switched off after {recorder.step_count} steps: {error}")

    def start(tensors: Iterable[Any] = ()) -> None:
        """Starts the clock of the card that the tensors lie on."""
        if recorder.marks is None:
            clock = QuietClock(CudaClock(_other_card(tensors)), failed, recorder.clock)
            recorder.marks = MarkReader(clock, recorder.table, recorder.clock)
            recorder.windows = DeviceWindows(recorder.marks, recorder.clock())
            log.marker = recorder.marks.clock

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        """Starts the clock before an optimizer's first step, if its parameters are on a GPU."""
        forget()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if any(p.is_cuda for p in parameters):
            start(parameters)

    def forwarded(module: torch.nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """Starts the clock in a loop without an optimizer, if a forward's output or first parameter is on a GPU."""
        nonlocal remaining
        remaining -= 1
        try:
            given = [output] if getattr(output, "is_cuda", False) else [*islice(module.parameters(), 1)]
            on_cuda = any(tensor.is_cuda for tensor in given)
        except Exception:  # the output may be an object of the user's, and reading its attributes may raise
            given, on_cuda = [], False
        if on_cuda:
            start(given)
        if on_cuda or remaining <= 0:
            forget()

    def forget() -> None:
        scope.forwarded.leave(forwarded)

    def end() -> None:
        forget()
        log.marker = recorder.windows = None

    def replays() -> None:
        """Starts the clock of the current card before the first launch of a CUDA graph."""
        scope.replayed.leave(replays)
        forget()
        start()

    scope.optimized.append(first_step)
    scope.replayed.append(replays)
    if scope.accelerated:
        scope.forwarded.append(forwarded)
    scope.at_end(end)
