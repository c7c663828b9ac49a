"""The meter around one fetch, and what it costs: clocks, the kernel's counters, the workers' most expensive lines.

Measured on a virtual machine of 2 cores, hot: one metered in full costs a fetch 3 us more, with the kernel's counters
14 us (caches cold and other programs beside it: 14 and 50 us). These are read for as many fetches as 0.2 % of the fetch
time allows, by what reading them costs at the time. In workers most fast fetches are only timed, in a few bytecodes
that touch little memory, and put down by the next one that is metered in full; all in all that is 1.3 us a fetch hot
where calls of ours around each were 4.1 us, and with cold caches 13 to 19 us where they were 34 to 47 us (both in turns
on a busy machine). benchmarks/fetching.py measures it anew.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.fetch.tally import SLOW_FETCH_S, SlotFile, Tally
from gpu_doctor.capture.fetch.thread_counters import ThreadCounters
from gpu_doctor.capture.lines.fetch_sampler import FetchLines
from gpu_doctor.capture.lines.switch_interval import usual_again

COLD: Final = 3.0
"""What reading the counters on both sides of a fetch costs, over what the first reading takes by the clock: the second
one finds the caches cold, and so does the code after it (measured on the CPU clock: 2 hot, 3 to 4 around a fetch)."""
UNDER: Final = "gpu_doctor_under"
"""On a wrapper of ours, what lies under it."""


LOOKED_AT_S: Final = 5e-4
"""Shorter fetches of the training process have no looks of their own: each takes Python's lock from the loop for some
0.1 ms, 13 us a step of 0.37 ms. Their lines are known from the looks at the whole loop."""


class Meter:
    """Where the fetches of a process go now."""

    shortest_s = LOOKED_AT_S
    """Fetches from this mean length on are looked at."""
    skips = False
    """Whether most quick fetches are kept back, their walls alone, until the next other one."""

    def __init__(self, thread: Callable[[], int] = get_ident) -> None:
        """Meters fetches of the thread that `thread` names at that time."""
        self.tally: Tally | None = None
        """None = not metered."""
        self.counters = ThreadCounters()
        self.plain = False
        """A fetch runs of which the wall alone is read."""
        self.kept_back: list[Callable[[], None]] = []
        """Puts the walls of plain fetches down that were kept back, one for each class of fetchers."""
        self._thread = thread

    def take(self) -> Tally | None:
        """The tally for a fetch that begins; until it is given back there is none (a fetch inside a fetch)."""
        tally = self.tally
        if tally is None or get_ident() != self._thread():
            return None
        self.tally = None
        if tally.lines is not None and tally.mean_s >= self.shortest_s:
            tally.lines.start()
            tally.lines.begin()
        return tally

    def give_back(self, tally: Tally) -> None:
        """The fetch has ended."""
        self.tally = tally
        if tally.lines is not None:
            tally.lines.end()


class WorkerMeter(Meter):
    """The meter of a worker process: all fetches of its main thread go into its slot while the run goes on."""

    shortest_s = 0.0
    skips = True

    def __init__(self, file: SlotFile, slot: int) -> None:
        here = get_ident()
        super().__init__(lambda: here)
        self._file, self._slot = file, slot
        self._generation = 0.0

    def take(self) -> Tally | None:
        """None also when the run is over; a later run finds the workers that stayed by another generation."""
        generation = self._file.generation
        if generation != self._generation:
            self._renew(generation)
        return super().take()

    def give_back(self, tally: Tally) -> None:
        """Looks go on: whether a fetch runs, they see by themselves."""
        self.tally = tally

    def end(self) -> None:
        """The worker ends."""
        if self._file.generation == self._generation:
            for put in self.kept_back:
                put()

    def _renew(self, generation: float) -> None:
        self._generation = generation
        if self.tally is not None and self.tally.lines is not None:
            self.tally.lines.stop()
        self.tally = None
        if generation:
            usual_again()
            self.tally = self._file.tally(self._slot)
            self.tally.lines = FetchLines(self._file.page(self._slot), FLOOR)
            self.tally.lines.start()


def metered(
    original: Callable[[Any, Any], Any], meter: Meter, cpu_clock: Callable[[], float]
) -> Callable[[Any, Any], Any]:
    """A fetch that is metered into the Tally that stands in `meter` at its time."""
    counters, clock, most = meter.counters, time.perf_counter, 0
    walls: list[float] = []
    """Of the plain fetches since the last other one,"""
    note = walls.append
    own: Any = None
    """by this fetcher,"""
    owner: Tally | None = None
    """which go here at the next other one,"""
    lines: Any = None
    """and whose lines are looked at here."""

    def put(tally: Tally | None) -> None:
        if walls and tally is not None and tally is owner:  # else they are of a run that is over
            tally.put(walls)
        walls.clear()

    if meter.skips:
        meter.kept_back.append(lambda: put(meter.tally))

    @functools.wraps(original)
    def fetch(self: Any, index: Any) -> Any:
        __tracebackhide__ = True
        nonlocal most, own, owner, lines
        limit = most
        if len(walls) < limit and self is own and not (lines.asleep or meter.plain):
            # Of most quick fetches of a worker the wall alone is read, without a call: cold, each costs microseconds.
            most, meter.plain = -1, True
            wall_s = clock()
            try:
                batch = original(self, index)
                wall_s = clock() - wall_s
            finally:
                most, meter.plain = limit, False
            note(wall_s)
            if wall_s >= SLOW_FETCH_S:
                most = 0
            return batch
        if meter.plain:
            return original(self, index)  # a fetch inside of such a one, of this class or the other
        tally, most = meter.take(), 0
        if tally is None:
            return original(self, index)
        if walls:
            put(tally)
        weight = 0 if tally.left else tally.weight
        before, cost_s = None, 0.0
        if weight and tally.counted:
            cost_s = time.perf_counter()
            before = counters.read()
            cost_s = time.perf_counter() - cost_s
        try:
            if weight and hasattr(self, "collate_fn"):
                collate, collate_s, collate_cpu_s = self.collate_fn, 0.0, 0.0

                def collate_timed(data: Any) -> Any:
                    __tracebackhide__ = True
                    nonlocal collate_s, collate_cpu_s
                    begin, cpu_begin = time.perf_counter(), cpu_clock()
                    try:
                        return collate(data)
                    finally:
                        collate_cpu_s += cpu_clock() - cpu_begin
                        collate_s += time.perf_counter() - begin

                self.collate_fn = collate_timed
                wall_s, cpu_s = time.perf_counter(), cpu_clock()
                try:
                    batch = original(self, index)
                finally:
                    self.collate_fn = collate
                cpu_s = cpu_clock() - cpu_s
                wall_s = time.perf_counter() - wall_s
                tally.add(wall_s, weight, cpu_s, collate_s, collate_cpu_s)
            else:
                wall_s, cpu_s = time.perf_counter(), cpu_clock() if weight else 0.0
                batch = original(self, index)
                cpu_s = cpu_clock() - cpu_s if weight else 0.0
                wall_s = time.perf_counter() - wall_s
                tally.add(wall_s, weight, cpu_s)
        finally:
            meter.give_back(tally)
        if meter.skips and tally.lines is not None:
            most, own, owner, lines = tally.left, self, tally, tally.lines
        if before is not None:
            tally.tell(wall_s, [now - then for now, then in zip(counters.read(), before, strict=True)], COLD * cost_s)
        return batch

    setattr(fetch, UNDER, original)
    return fetch


def noticed(create: Callable[..., Any], meter_class: Callable[[Any], None]) -> Callable[..., Any]:
    """Torch's maker of fetchers: the class of a fetcher that is not torch's own gets the meter when one is made."""

    @functools.wraps(create)
    def create_fetcher(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        fetcher = create(*args, **options)
        kind = type(fetcher)
        if callable(getattr(kind, "fetch", None)) and not hasattr(kind.fetch, UNDER):
            meter_class(kind)
        return fetcher

    setattr(create_fetcher, UNDER, create)
    return create_fetcher


def _nothing(fetcher: Any, index: Any) -> None:
    return None


FLOOR: Final = metered(_nothing, Meter(), time.perf_counter).__code__
"""The code of every metered fetch: what lies above it on a stack belongs to the fetch."""
