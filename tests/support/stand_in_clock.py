"""The two clocks of a stand-in GPU: the host's, out of which the computing of operations is taken, and a queue on it.

The host's clock is the real one less what this process has computed for the card. While it computes, the clock stands
still; then it goes on by the cost of a launch. A wait for the card is slept for real, so that threads and loader
workers have as much time in it as a GPU would give them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import RawArray
from threading import get_ident
from typing import Any

PERIOD_NS = 500_000_000
"""NVML's utilisation is over a period of a sixth of a second to a second (its manual)."""
_REMEMBERED = 50_000
"""Stretches in which kernels ran; more than a host can make in a period."""
_SPIN_NS = 200_000
"""A sleep overshoots by up to about so much: the rest of a wait is spent looking at the clock."""


class HostClock:
    """Nanoseconds of the host as the program shall see them; loader workers read it in shared memory."""

    def __init__(
        self,
        real: Callable[[], int] = time.perf_counter_ns,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Args: real, thread_cpu: the machine's clocks. sleep: waits for real."""
        self.real, self.thread_cpu, self.sleep = real, thread_cpu, sleep
        self._shared: Any = RawArray("q", 2)
        """What was computed so far, and since when it is being computed (real), 0 = it is not."""
        self.cpu_ns = 0
        """Of CPU time, what was computed so far."""
        self.cpu_of: dict[int, int] = {}
        """The same by thread."""
        self.launched_ns = self.computed_ns = 0
        """What launches have cost the host, and what computing them really took."""
        self.own_excess: int | None = None
        """In a worker: what had been computed when it began; its own durations are real."""

    def now(self) -> int:
        """The host's clock."""
        if self.own_excess is not None:
            return self.real() - self.own_excess
        return self.shared_now()

    def shared_now(self) -> int:
        """As the training process sees it, in a worker too."""
        excess, since = self._shared
        return int(since or self.real()) - int(excess)

    @property
    def computing(self) -> bool:
        """The clock stands still."""
        return bool(self._shared[1])

    def stop(self) -> tuple[int, int]:
        """Stands still from now on; returns what `go` needs."""
        begin = self.real()
        self._shared[1] = begin
        return begin, self.thread_cpu()

    def go(self, stopped: tuple[int, int], cost_ns: int) -> None:
        """Goes on, by what the host would have spent."""
        begin, cpu_begin = stopped
        cpu = self.thread_cpu() - cpu_begin - cost_ns
        self.cpu_ns += cpu
        thread = get_ident()
        self.cpu_of[thread] = self.cpu_of.get(thread, 0) + cpu
        self.launched_ns += cost_ns
        took = self.real() - begin
        self.computed_ns += took
        self._shared[0] += took - cost_ns
        self._shared[1] = 0

    def wait_until(self, at_ns: int) -> None:
        """The host waits, for real."""
        while (left := at_ns - self.now()) > 0:
            if left > _SPIN_NS:
                self.sleep((left - _SPIN_NS) * 1e-9)


@dataclass
class Queue:
    """An in-order queue of launches for each stream, of bounded depth, on the host's clock."""

    clock: HostClock
    depth: int = 1024
    """The host is held back when so many launches lie in a stream."""
    streams: dict[int, int] = field(default_factory=lambda: {0: 0})
    """When each stream's queue will have run empty."""
    current: int = 0
    busy_ns: int = 0
    """Work that was launched in all."""
    launches: int = 0
    _ends: deque[int] = field(default_factory=deque)
    _ran: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """When kernels ran, not overlapping."""

    def launch(self, ns: int, kernel: bool = True) -> int:
        """Work for the current stream, a kernel or a copy; returns when it will be done."""
        now = self.clock.now()
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
        if len(self._ends) >= self.depth:
            self.clock.wait_until(self._ends.popleft())
        end = max(self.streams.get(self.current, 0), self.clock.now()) + ns
        self.streams[self.current] = end
        self._ends.append(end)
        if kernel:
            self._note(end - ns, end)
        self.busy_ns += ns
        self.launches += 1
        return end

    def _note(self, begin: int, end: int) -> None:
        if self._ran and begin <= self._ran[-1][1]:
            begin, end = self._ran[-1][0], max(end, self._ran.pop()[1])
        self._ran.append((begin, end))

    def utilisation_pct(self) -> int:
        """As NVML says it: the part of the last period in which a kernel ran."""
        now = self.clock.now()
        ran = sum(max(min(end, now) - max(begin, now - PERIOD_NS), 0) for begin, end in self._ran.copy())
        return round(100 * ran / PERIOD_NS)

    def wait(self, stream: int | None = None) -> None:
        """The host waits for one stream, None = for the current one."""
        self.clock.wait_until(self.streams.get(self.current if stream is None else stream, 0))

    def drain(self) -> None:
        """The host waits for all of them."""
        self.clock.wait_until(max(self.streams.values()))

    def hold(self, stream: int, until_ns: int) -> None:
        """What is given to this stream from now on begins no sooner."""
        self.streams[stream] = max(self.streams.get(stream, 0), until_ns)
