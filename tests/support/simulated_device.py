"""An asynchronous device: what is launched runs in queues while the host's clock goes on by itself.

It behaves as CUDA does: a launch takes the host its time and returns, work runs in the order of its stream, the host is
held back when a thousand launches are queued, an event passes an idle device some microseconds after it was recorded,
clocks rise in the first second of work, new sizes of memory stop everything. Time is virtual, or the host's own.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gpu_doctor.capture.events import (
    BACKED,
    BATCH,
    BATCH_AT,
    CALL,
    CALLED,
    COPIED,
    COPYING,
    CPU,
    CPU_EVERY_NS,
    DIFFERENTIATE,
    DONE,
    EXHAUSTED,
    GRADIENT,
    NEXT,
    NEXT_BLIND,
    STEP,
    STEPPED,
    SYNCED,
    WAITING,
    ZERO,
    call_code,
)
from gpu_doctor.capture.gpu.clock import QuietClock
from gpu_doctor.capture.gpu.marks import MarkReader
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.sources import Pulled
from gpu_doctor.recording import Recording
from tests.support.iterators import iterator

MS: Final = 1_000_000
QUERY_NS: Final = 1_000
"""To ask a stream whether it has run empty takes about a microsecond."""
MARK_NS: Final = 3_000
"""So does an event that is recorded, with the Python around it, three times over."""
FOLD_NS: Final = 20_000
FOLD_EVENT_NS: Final = 2_000
"""Folding our log takes so long, and for each event in it: 0.15 ms a step were measured on a CPU."""
LATENCY_NS: Final = 8_000
"""From the host's call until an idle device has passed an event or begun a kernel: 5 to 10 us."""
MOST_LAUNCHED: Final = 1024
"""Launches that a stream takes before it holds the host back."""
MALLOC_NS: Final = 400_000
"""A `cudaMalloc`, beside the wait for all streams."""
INIT_NS: Final = 250 * MS
CORES: Final = 16.0
"""Of the host."""
LOW_CLOCK: Final = 345 / 1980
"""Of its highest clock an idle device has so much, and rises to all of it within a second of work."""
RAMP_NS: Final = 1000 * MS


class Work(NamedTuple):
    """Something the device did."""

    begin: int
    end: int
    stream: int
    kind: str
    """`copy`, or the phase that launched it."""


@dataclass
class Mark:
    """A place in a queue, passed at a known moment of the device's time."""

    passed_ns: int
    stream: int = 0
    freed: bool = False


@dataclass
class Graph:
    """What was launched while it was captured."""

    launches: list[tuple[float, str]] = field(default_factory=list)


class SimulatedDevice:
    """A DeviceClock, and the host that launches: both clocks in one place, in nanoseconds."""

    def __init__(self, *, exact: bool = False, ramps: bool = False, real: bool = False) -> None:
        """A device that has done nothing yet.

        Args:
            exact: events and our own work take no time.
            ramps: its clock is low at the begin.
            real: the host's own clock is used, and what takes the host time is slept.
        """
        self.exact, self._ramps, self._real = exact, ramps, real
        self._now = 0
        self.stream = self.compute = 0
        """The current stream, and the one that was followed."""
        self.streams = {0: 0}
        """When the queue of each will have run empty."""
        self._queued: dict[int, deque[int]] = {}
        self.work: list[Work] = []
        self.waits: list[tuple[int, int]] = []
        """When the host waited for a batch,"""
        self.asked: list[int] = []
        """and when the compute stream had done all that it had been given before each of these waits."""
        self.own: list[tuple[int, int]] = []
        """When the host worked for us."""
        self.ends: list[int] = []
        """When the device had done what each step launched."""
        self.mark_cost_ms = 0.0
        """Host: to put a mark, beside `MARK_NS`."""
        self.marks: list[Mark] = []
        self.initialised = False
        self.touched: Counter[str] = Counter()
        """Calls that touched CUDA before it was initialised, by name; the last one may have initialised it."""
        self.graph: Graph | None = None
        """Is being captured."""
        self.sizes: set[int] = set()
        """Of memory that the allocator keeps."""
        self._worked = 0
        self.card = 0
        """Number of the current card, where a loop goes from one to another."""

    @property
    def virtual(self) -> bool:
        """Time passes only where something takes it."""
        return not self._real

    # ---- the host ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The host's clock."""
        return time.perf_counter_ns() if self._real else self._now

    @now.setter
    def now(self, ns: int) -> None:
        self._pass(ns - self.now)

    def _pass(self, ns: int) -> None:
        if ns <= 0:
            return
        if self._real:
            time.sleep(ns * 1e-9)
        else:
            self._now += ns

    def host(self, ms: float) -> None:
        """The host computes or waits for something else."""
        self._pass(round(ms * MS))

    def fetch(self, ms: float) -> None:
        """The host waits for a batch."""
        begin = self.now
        self.asked.append(max(self.streams[0], begin))
        self.host(ms)
        self.waits.append((begin, self.now))

    def _ours(self, ns: int) -> None:
        if not self.exact and not self._real:
            self.own.append((self._now, self._now + ns))
            self._now += ns

    def recorder(self, **options: Any) -> Recorder:
        """A recorder on this clock, whose folding takes the host its time."""
        found = Recorder(clock=lambda: self.now, sync_measured=True, **options)
        found.facts.update(device="cuda:0", usable_cores=CORES, os_cores=int(CORES))
        take: Callable[[list[Any]], None] = found._take

        def taken(events: list[Any]) -> None:
            self._ours(FOLD_NS + FOLD_EVENT_NS * len(events))
            take(events)

        found._take = taken  # type: ignore[method-assign]
        return found

    def touch(self, call: str) -> None:
        """A call that initialises CUDA, or asks its driver."""
        if not self.initialised:
            self.touched[call] += 1

    def initialise(self) -> None:
        """The first call that needs a context makes it."""
        if not self.initialised:
            self.initialised = True
            if not self.exact:
                self._pass(0 if self._real else INIT_NS)

    # ---- work -------------------------------------------------------------------------------------------------------

    @property
    def idle_from(self) -> int:
        """When the current stream's queue will have run empty."""
        return self.streams.setdefault(self.stream, 0)

    @idle_from.setter
    def idle_from(self, ns: int) -> None:
        self.streams[self.stream] = ns

    @property
    def busy(self) -> int:
        """Nanoseconds of work that were launched in all."""
        return sum(one.end - one.begin for one in self.work)

    @property
    def of_phase(self) -> dict[str, int]:
        """The same by what launched it."""
        found: dict[str, int] = {}
        for one in self.work:
            found[one.kind] = found.get(one.kind, 0) + one.end - one.begin
        return found

    def wait_stream(self, other: int) -> None:
        """What the current stream is given from now on waits for all that `other` has; the host does not."""
        self.idle_from = max(self.idle_from, self.streams.get(other, 0))

    def launch(self, ms: float, cost_ms: float = 0.0, phase: str = "") -> None:
        """Work of `ms` goes into the current queue; launching costs the host `cost_ms`."""
        if self.graph is not None:
            self.graph.launches.append((ms, phase))
            return
        self.host(cost_ms)
        took = round(ms * MS / self._speed())
        begin = max(self.idle_from, self.now + (0 if self.exact or not took else LATENCY_NS))
        if took:
            self.work.append(Work(begin, begin + took, self.stream, phase))
            self._worked += took
            self.idle_from = begin + took
        self._hold_back()

    def _hold_back(self) -> None:
        queue = self._queued.setdefault(self.stream, deque())
        queue.append(self.idle_from)
        if len(queue) > MOST_LAUNCHED:
            self._pass(queue.popleft() - self.now)

    def _speed(self) -> float:
        return LOW_CLOCK + (1 - LOW_CLOCK) * min(self._worked / RAMP_NS, 1.0) if self._ramps else 1.0

    def copy(self, ms: float, blocks: bool, cost_ms: float = 0.0) -> None:
        """A copy between host and device; the host waits for one that blocks."""
        self.launch(ms, cost_ms, "copy")
        if blocks:
            self.synchronize()

    def synchronize(self) -> int:
        """The host waits until the current queue is empty; returns for how long."""
        waited = max(self.idle_from - self.now, 0)
        self._pass(waited + (0 if self.exact else LATENCY_NS))
        return waited

    def allocate(self, nbytes: int) -> None:
        """Memory of a size that the allocator has not met yet stops everything."""
        if nbytes not in self.sizes:
            self.sizes.add(nbytes)
            self._pass(max(*self.streams.values(), self.now) - self.now)
            self._pass(0 if self.exact else MALLOC_NS)

    def replay(self, graph: Graph, cost_ms: float = 0.01) -> None:
        """All that was captured goes into the queue at once."""
        self.host(cost_ms)
        for ms, phase in graph.launches:
            self.launch(ms, 0.0, phase)

    # ---- see DeviceClock --------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """See DeviceClock."""
        return self.graph is None

    def follow(self) -> None:
        """See DeviceClock."""
        self.compute = self.stream

    def aside(self) -> bool:
        """See DeviceClock."""
        return self.stream != self.compute

    def mark(self, current: bool = False) -> Mark:
        """See DeviceClock."""
        assert self.graph is None, "an event was recorded while a graph is captured"
        self.host(self.mark_cost_ms)
        stream = self.stream if current else self.compute
        idle_from = self.streams.setdefault(stream, 0)
        self.marks.append(Mark(max(idle_from, self.now + (0 if self.exact else LATENCY_NS)), stream))
        self._ours(MARK_NS)
        return self.marks[-1]

    def done(self, mark: Mark) -> bool:
        """See DeviceClock."""
        assert not mark.freed, "a freed mark was asked"
        return self.now >= mark.passed_ns

    def idle(self) -> bool:
        """See DeviceClock; to ask takes the host its time."""
        self._ours(QUERY_NS)
        return self.now >= self.streams.setdefault(self.compute, 0)

    def seconds(self, begin: Mark, end: Mark) -> float:
        """See DeviceClock."""
        if not self.done(end):
            return float("nan")
        assert self.done(begin)
        return (end.passed_ns - begin.passed_ns) * 1e-9

    def free(self, mark: Mark) -> None:
        """See DeviceClock."""
        assert not mark.freed, "a mark was freed twice"
        mark.freed = True

    @property
    def unfreed(self) -> int:
        """Marks that are still held."""
        return sum(not mark.freed for mark in self.marks)


class Noted:
    """Notes on a recorder's log what a loop does, and folds it when that is due: event for event as the taps do."""

    def __init__(self, recorder: Recorder, device: SimulatedDevice | None = None) -> None:
        """Args: recorder: whose log it is. device: steps are marked on it, as the tap `gpu_clock` would."""
        self.recorder, self.log = recorder, recorder.log
        self.source = iterator()
        """Of the batches, where no other is named."""
        if device is not None:
            recorder.marks = MarkReader(QuietClock(device, None, recorder.clock), recorder.table, recorder.clock)
            recorder.windows = DeviceWindows(recorder.marks, recorder.clock())
            self.log.marker = recorder.marks.clock

    def _fold(self, now: int) -> None:
        if now >= self.log.due_ns or len(self.log.events) >= self.log.due:
            self.recorder.fold(now)

    def ask(self, source: Pulled | None = None, grad: bool = True) -> None:
        """The loop asks a loader for its next batch."""
        log = self.log
        if log.marker is not None:
            log.mark(NEXT)
        now = log.clock()
        if now >= log.cpu_due_ns:
            log.cpu_due_ns = now + CPU_EVERY_NS
            log.note((CPU, now, log.cpu_clock()))
        log.steps += 1
        log.note((NEXT if grad else NEXT_BLIND, now, self.source if source is None else source))
        self._fold(now)

    def batch(self, samples: float = 8.0) -> None:
        """It is there."""
        self.log.pulled = True
        self.log.mark(BATCH)
        self.log.note((BATCH, self.log.clock(), samples))
        if self.recorder.marks is not None:  # the tap on copies is up where there is a device
            self.log.note((BATCH_AT, self.log.clock(), frozenset()))

    def pull(self, source: Pulled | None = None, grad: bool = True, samples: float = 8.0) -> None:
        """It is asked for and there at once."""
        self.ask(source, grad)
        self.batch(samples)

    def exhaust(self, source: Pulled | None = None, grad: bool = True) -> None:
        """It is asked for, and there is none any more."""
        self.ask(source, grad)
        if self.log.marker is not None:
            self.log.mark(EXHAUSTED)
        self.log.note((EXHAUSTED, self.log.clock(), None))

    def forward(self, training: bool = True, grad: bool = True, trained: bool = True, samples: float = 8.0) -> None:
        """An outermost module's forward begins; see `events.call_code`."""
        log = self.log
        now = log.clock()
        log.note((call_code(training, grad, trained), now, None if log.pulled else (samples, 1)))
        self._fold(now)
        if log.marker is not None:
            log.mark(CALL, follow=True)

    def called(self) -> None:
        """It has ended."""
        log = self.log
        if log.marker is not None:
            log.mark(CALLED)
        log.note((CALLED, log.clock(), None))

    def backward(self, loss: object = None) -> None:
        """A backward begins, of a loss that is kept where it is time for one."""
        number = None
        if loss is not None and self.log.steps >= self.log.loss_at:
            number = self.recorder.store_loss(loss)
        if not self.log.pulled:
            self.log.steps += 1
        self.gradient(GRADIENT, number)

    def gradient(self, code: int = DIFFERENTIATE, loss: int | None = None) -> None:
        """Gradients are made by `torch.autograd.grad` (GRADIENT if those of a whole model are)."""
        log = self.log
        now = log.clock()
        log.note((code, now, loss))
        self._fold(now)
        if log.marker is not None:
            log.mark(GRADIENT)

    def backed(self) -> None:
        """Either has ended."""
        log = self.log
        if log.marker is not None:
            log.mark(BACKED)
        log.note((BACKED, log.clock(), None))

    def step(self, key: int = 1) -> None:
        """An optimizer begins to step."""
        log = self.log
        now = log.clock()
        log.note((STEP, now, key))
        log.trains = True
        self._fold(now)
        if log.marker is not None:
            log.mark(STEP, follow=True)

    def stepped(self, key: int = 1) -> None:
        """It has stepped."""
        log = self.log
        if log.marker is not None:
            log.mark(STEPPED)
        log.note((STEPPED, log.clock(), key))
        log.pulled = False

    def learns(self, key: int = 1, loss: object = None) -> None:
        """A backward and an optimizer's step that take no time."""
        self.backward(loss)
        self.backed()
        self.step(key)
        self.stepped(key)

    def zero(self) -> None:
        """Gradients are set to zero."""
        log = self.log
        log.mark(ZERO)
        log.note((ZERO, log.clock(), None))
        log.note((DONE, log.clock(), None))

    def copying(self) -> None:
        """A tensor is about to be copied to the device."""
        self.log.note((COPYING, self.log.clock(), None))
        self.log.mark(COPYING)

    def copied(self, nbytes: int, pageable: bool) -> None:
        """It was."""
        self.log.mark(COPIED)
        self.log.note((COPIED, self.log.clock(), (nbytes, pageable, None)))

    def awaits(self, device: SimulatedDevice, copy_ms: float = 0.0) -> None:
        """The host waits until the device has done all that it was given; then it copies what it has come for."""
        log = self.log
        log.note((WAITING, log.clock(), None))
        log.mark(WAITING)
        device.synchronize()
        device.host(copy_ms)
        log.mark(SYNCED)
        log.note((SYNCED, log.clock(), None))

    def end(self) -> None:
        """The loop is over: the taps come off."""
        self.recorder.loop_over()
        self.log.marker = self.recorder.windows = None

    def close(self) -> Recording:
        """The loop is over, and so is the run."""
        self.end()
        return self.recorder.close()
