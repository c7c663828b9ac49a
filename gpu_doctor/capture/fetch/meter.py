"""The meter around one fetch, and what it costs: clocks, the kernel's counters, the workers' most expensive lines.

Measured on a virtual machine of 2 cores, hot: one metered in full costs a fetch 3 us more, with the kernel's counters
14 us (caches cold and other programs beside it: 14 and 50 us). These are read for as many fetches as 0.2 % of the fetch
time allows, by what reading them costs at the time. In workers most fast fetches are only timed, in a few bytecodes
that touch little memory, and put down by the next one that is metered in full; all in all that is 1.3 us a fetch hot
where calls of ours around each were 4.1 us, and with cold caches 13 to 19 us where they were 34 to 47 us (both in turns
on a busy machine).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.fetch.tally import SLOW_FETCH_S, SlotFile, Tally
from gpu_doctor.capture.fetch.thread_counters import ThreadCounters
from gpu_doctor.capture.lines.fetch_sampler import FetchLines

COLD: Final = 3.0
"""What reading the counters on both sides of a fetch costs, over what the first reading takes by the clock: the second
one finds the caches cold, and so does the code after it (measured on the CPU clock: 2 hot, 3 to 4 around a fetch)."""
UNDER: Final = "gpu_doctor_under"
"""On a wrapper of ours, what lies under it."""


class Meter:
    """Where the fetches of a process go now."""

    skips = False
    """Whether most quick fetches are kept back, their walls alone, until the next other one."""

    def __init__(self, thread: Callable[[], int] = get_ident) -> None:
        """Meters fetches of the thread that `thread` names at that time."""
        self.tally: Tally | None = None
        """None = not metered."""
        self.counters = ThreadCounters()
        self.plain = False
        """A fetch runs of which the wall alone is read; or none is metered any more."""
        self.kept_back: list[Callable[[], None]] = []
        """Puts the walls of plain fetches down that were kept back, one for each class of fetchers."""
        self._thread = thread
        self.on_error: Callable[[Exception], None] = lambda error: None
        """Hears of an error of ours."""

    def broke(self, error: Exception) -> None:
        """Something of ours raised around a fetch: none is metered any more. Never raises."""
        self.tally, self.plain = None, True
        with contextlib.suppress(Exception):
            self.on_error(error)

    def take(self) -> Tally | None:
        """The tally for a fetch that begins; until it is given back there is none (a fetch inside a fetch)."""
        tally = self.tally
        if tally is None or get_ident() != self._thread():
            return None
        self.tally = None
        return tally

    def give_back(self, tally: Tally) -> None:
        """The fetch has ended."""
        self.tally = tally


class WorkerMeter(Meter):
    """The meter of a worker process: all fetches of its main thread go into its slot while the run goes on."""

    skips = True

    def __init__(self, file: SlotFile, slot: int) -> None:
        here = get_ident()
        super().__init__(lambda: here)
        self._file, self._slot = file, slot
        self.on_error = lambda error: file.tally(slot).fail()  # the process that trains says so
        self._generation = 0.0

    def take(self) -> Tally | None:
        """None also when the run is over; a later run finds the workers that stayed by another generation."""
        generation = self._file.generation
        if generation != self._generation:
            self._renew(generation)
        return super().take()

    def end(self) -> None:
        """The worker ends: nothing of ours is to be seen of it."""
        with contextlib.suppress(Exception):
            if self._file.generation == self._generation:
                for put in self.kept_back:
                    put()

    def _renew(self, generation: float) -> None:
        self._generation = generation
        if self.tally is not None and self.tally.lines is not None:
            self.tally.lines.stop()
        self.tally = None
        if generation:
            self.tally = self._file.tally(self._slot)
            self.tally.lines = FetchLines(
                self._file.page(self._slot), FLOOR, lambda: self._file.generation == generation
            )
            self.tally.lines.start()


class _Fetch:
    """A fetch that is metered in full, while it runs."""

    __slots__ = (
        "before",
        "collate",
        "collate_cpu_s",
        "collate_s",
        "cost_s",
        "cpu_s",
        "fetcher",
        "tally",
        "wall_s",
        "weight",
    )

    def __init__(self, fetcher: Any, tally: Tally) -> None:
        self.fetcher, self.tally = fetcher, tally
        self.weight = 0 if tally.left else tally.weight
        self.before: tuple[float, ...] | None = None
        """The kernel's counters, if they are read for this one."""
        self.cost_s = self.collate_s = self.collate_cpu_s = self.wall_s = self.cpu_s = 0.0
        self.collate: Callable[[Any], Any] | None = None
        """The fetcher's own, while a timed one stands in its place."""

    def time_collate(self, cpu_clock: Callable[[], float]) -> None:
        """Puts a timed one in the place of the fetcher's collate function."""
        collate = self.collate = self.fetcher.collate_fn

        def collate_timed(data: Any) -> Any:
            __tracebackhide__ = True
            begin, cpu_begin = time.perf_counter(), cpu_clock()
            try:
                return collate(data)
            finally:
                self.collate_cpu_s += cpu_clock() - cpu_begin
                self.collate_s += time.perf_counter() - begin

        self.fetcher.collate_fn = collate_timed

    def untime(self) -> None:
        """The fetcher has its own again."""
        if self.collate is not None:
            self.fetcher.collate_fn, self.collate = self.collate, None


class _Metering:
    """The meter around the fetches of one class of fetchers, and what it keeps back of plain ones."""

    __slots__ = ("_cpu_clock", "_meter", "_owner", "most", "own", "walls")

    def __init__(self, meter: Meter, cpu_clock: Callable[[], float]) -> None:
        self._meter, self._cpu_clock = meter, cpu_clock
        self.walls: list[float] = []
        """Of the plain fetches since the last other one,"""
        self.most = 0
        """of so many at most,"""
        self.own: Any = None
        """by this fetcher,"""
        self._owner: Tally | None = None
        """which go here at the next other one."""
        if meter.skips:
            meter.kept_back.append(lambda: self.put(meter.tally))

    def put(self, tally: Tally | None) -> None:
        """Puts down what was kept back."""
        if self.walls and tally is not None and tally is self._owner:  # else they are of a run that is over
            tally.put(self.walls)
        self.walls.clear()

    def begins(self, fetcher: Any) -> _Fetch | None:
        """A fetch that is none of the plain ones."""
        tally, self.most = self._meter.take(), 0
        if tally is None:
            return None
        if self.walls:
            self.put(tally)
        one, clock = _Fetch(fetcher, tally), time.perf_counter
        if one.weight and tally.counted:
            one.cost_s = clock()
            one.before = self._meter.counters.read()
            one.cost_s = clock() - one.cost_s
        if one.weight and hasattr(fetcher, "collate_fn"):
            one.time_collate(self._cpu_clock)
        one.wall_s, one.cpu_s = clock(), self._cpu_clock() if one.weight else 0.0
        return one

    def ends(self, one: _Fetch) -> None:
        """It has returned."""
        cpu_s = self._cpu_clock() - one.cpu_s if one.weight else 0.0
        wall_s = time.perf_counter() - one.wall_s
        one.untime()
        meter, tally = self._meter, one.tally
        tally.add(wall_s, one.weight, cpu_s, one.collate_s, one.collate_cpu_s)
        meter.give_back(tally)
        if meter.skips and tally.lines is not None:
            self.most, self.own, self._owner = tally.left, one.fetcher, tally
        if one.before is not None:
            counts = [now - then for now, then in zip(meter.counters.read(), one.before, strict=True)]
            tally.tell(wall_s, counts, COLD * one.cost_s)

    def raised(self, one: _Fetch) -> None:
        """It has not."""
        one.untime()
        self._meter.give_back(one.tally)


def metered(
    original: Callable[[Any, Any], Any], meter: Meter, cpu_clock: Callable[[], float]
) -> Callable[[Any, Any], Any]:
    """A fetch that is metered into the Tally that stands in `meter` at its time; a fence as in `fence.py`."""
    kept, clock = _Metering(meter, cpu_clock), time.perf_counter
    walls, note = kept.walls, kept.walls.append

    @functools.wraps(original)
    def fetch(self: Any, index: Any) -> Any:
        __tracebackhide__ = True
        limit = kept.most
        if len(walls) < limit and self is kept.own and not meter.plain:
            # Of most quick fetches of a worker the wall alone is read, without a call: cold, each costs microseconds.
            kept.most, meter.plain = -1, True
            wall_s = clock()
            try:
                batch = original(self, index)
                wall_s = clock() - wall_s
            finally:
                kept.most, meter.plain = limit, False
            note(wall_s)
            if wall_s >= SLOW_FETCH_S:
                kept.most = 0
            return batch
        if meter.plain:
            return original(self, index)  # a fetch inside of such a one, of this class or the other
        one = None
        try:
            one = kept.begins(self)
        except Exception as error:
            meter.broke(error)
        if one is None:
            return original(self, index)
        try:
            batch = original(self, index)
        except BaseException:
            try:
                kept.raised(one)
            except Exception as error:
                meter.broke(error)
            raise
        try:
            kept.ends(one)
        except Exception as error:
            meter.broke(error)
        return batch

    setattr(fetch, UNDER, original)
    return fetch


def noticed(create: Callable[..., Any], meter_class: Callable[[Any], None]) -> Callable[..., Any]:
    """Torch's maker of fetchers: the class of a fetcher that is not torch's own gets the meter when one is made."""

    @functools.wraps(create)
    def create_fetcher(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        fetcher = create(*args, **options)
        with contextlib.suppress(Exception):  # a fetcher without a meter is better than none
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
