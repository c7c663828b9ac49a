"""The device's clock on a CUDA device: events from a pool, put into the compute stream, queried, never waited for.

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
"""A loop of which so many forwards ran elsewhere is not asked any more."""
_Mark: TypeAlias = tuple[int, torch.cuda.Event]
"""The number of the device, and the event."""


class CudaClock:
    """A DeviceClock over CUDA events with timing.

    An event belongs to the device that it was first recorded on, and only two of one device can be compared.
    """

    def __init__(self, card: int | None = None) -> None:
        """Args: card: computes, whichever is the current one; None = the current one does."""
        self._card = card
        self._pools: dict[int, list[_Mark]] = {}
        self._compute: torch.cuda.Stream | None = None

    def ready(self) -> bool:
        """While a graph is captured an event would become part of it, and a query would spoil the capture."""
        return not torch.cuda.is_current_stream_capturing()

    def follow(self) -> None:
        """The current stream of the device computes."""
        self._compute = torch.cuda.current_stream(self._card)

    def aside(self) -> bool:
        """Whether the current stream is not the one that computes."""
        return self._compute is not None and bool(torch.cuda.current_stream(self._card) != self._compute)

    def mark(self, current: bool = False) -> _Mark:
        """Records an event on the compute stream, or on the current one."""
        stream = self._stream() if not current else torch.cuda.current_stream(self._card)
        index = stream.device_index
        pool = self._pools.get(index)
        mark = pool.pop() if pool else (index, torch.cuda.Event(enable_timing=True))
        mark[1].record(stream)
        return mark

    def done(self, mark: _Mark) -> bool:
        """`event.query()`: true once the stream has passed it; not asked while a graph is captured."""
        return self.ready() and bool(mark[1].query())

    def idle(self) -> bool:
        """`stream.query()` of the compute stream."""
        return bool(self._stream().query())

    def seconds(self, begin: _Mark, end: _Mark) -> float:
        """`elapsed_time` in seconds (resolution about 0.5 us), which raises where an event was not passed yet."""
        if begin[0] != end[0] or not end[1].query():
            return float("nan")
        return float(begin[1].elapsed_time(end[1])) * 1e-3

    def free(self, mark: _Mark) -> None:
        """Back into its device's pool."""
        self._pools.setdefault(mark[0], []).append(mark)

    def _stream(self) -> torch.cuda.Stream:
        return self._compute if self._compute is not None else torch.cuda.current_stream(self._card)


def _other_card(tensors: Iterable[Any]) -> int | None:
    """The card of a model that lies on other cards than the current one: a loop need not make its card that."""
    places = (getattr(one, "device", None) for one in tensors if one.is_cuda)
    cards: set[int] = {place.index for place in places if place is not None and place.index is not None}
    return None if torch.cuda.current_device() in cards else min(cards, default=None)


def tap(scope: TapScope) -> None:
    """Marks steps on the device once a module or an optimizer on a GPU is heard, until the run ends."""
    recorder, log = scope.recorder, scope.recorder.log
    left = FORWARDS

    def failed(error: Exception) -> None:
        """The clock gives no marks from here on; `windows` takes it off the log when the step ends."""
        recorder.note(f"GPU timing failed and was switched off after {recorder.step_count} steps: {error}")

    def give(tensors: Iterable[Any] = ()) -> None:
        if recorder.marks is None:
            clock = QuietClock(CudaClock(_other_card(tensors)), failed, recorder.clock)
            recorder.marks = MarkReader(clock, recorder.table, recorder.clock)
            recorder.windows = DeviceWindows(recorder.marks, recorder.clock())
            log.marker = recorder.marks.clock

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        forget()
        learned = [p for group in optimizer.param_groups for p in group["params"]]
        if any(p.is_cuda for p in learned):
            give(learned)

    def heard(module: torch.nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """Of a loop without an optimizer, a forward's output or its module's first parameter says where it runs."""
        nonlocal left
        left -= 1
        try:
            given = [output] if getattr(output, "is_cuda", False) else [*islice(module.parameters(), 1)]
            on_cuda = any(one.is_cuda for one in given)
        except Exception:  # the output is the user's own, and so may be what reads its attributes
            given, on_cuda = [], False
        if on_cuda:
            give(given)
        if on_cuda or left <= 0:
            forget()

    def forget() -> None:
        scope.heard.leave(heard)

    def end() -> None:
        forget()
        log.marker = recorder.windows = None

    def replays() -> None:
        scope.replayed.leave(replays)
        forget()
        give()

    scope.optimized.append(first_step)
    scope.replayed.append(replays)
    if scope.accelerated:
        scope.heard.append(heard)
    scope.at_end(end)
