"""The meter around a fetch: clocks, the kernel's counters, the collate, and in workers looks at the lines.

A fetch is metered in full or not at all. Metering measures what it takes itself, and the `Tally` leaves out as many
fetches as keep that below its share of the fetch time.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.fetch.tally import SlotFile, Tally
from gpu_doctor.capture.fetch.thread_counters import ThreadCounters
from gpu_doctor.capture.lines.fetch_sampler import FetchLines
from gpu_doctor.capture.patching import Patches

UNDER: Final = "gpu_doctor_under"
"""On a wrapper of ours, what lies under it."""


class Meter:
    """Where the fetches of a process go now."""

    cpu_clock = staticmethod(time.thread_time)
    renews = False
    """`begins` finds out by itself whether there is a tally."""

    def __init__(
        self,
        thread: Callable[[], int] = get_ident,
        clock: Callable[[], int] = time.perf_counter_ns,
        on_error: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Meters nothing yet.

        Args:
            thread: gives the id of the thread whose fetches are metered.
            clock: in ns, for what metering costs.
            on_error: is called with an error of ours.
        """
        self.tally: Tally | None = None
        """Takes the fetches; None = they are not metered."""
        self.clock = clock
        self.cost_ns = 0
        """What metering has taken since `off`."""
        self.counters = ThreadCounters()
        self._thread, self._on_error = thread, on_error

    def off(self) -> int:
        """Meters no more; returns what metering has taken since it was asked last, in ns."""
        cost_ns, self.tally, self.cost_ns = self.cost_ns, None, 0
        return cost_ns

    def begins(self, fetcher: Any) -> MeteredFetch | None:
        """A fetch begins; None where it is not this meter's. A fetch inside of it is a part of it."""
        tally = self.tally
        if tally is None or get_ident() != self._thread():
            return None
        self.tally = None
        fetch = MeteredFetch(tally)
        if tally.left > 0:
            tally.left -= 1
        else:
            try:
                fetch.begin(fetcher, self)
            except BaseException:
                fetch.patches.restore()
                raise
        return fetch

    def ends(self, fetch: MeteredFetch) -> None:
        """The fetch has returned."""
        try:
            if fetch.metered:
                self.cost_ns += fetch.end(self)
        finally:
            self.leave(fetch)

    def leave(self, fetch: MeteredFetch) -> None:
        """The fetch is over: all is as before it. One that has raised does not count."""
        fetch.patches.restore()
        self.tally = fetch.tally

    def broke(self, error: Exception) -> None:
        """Something of ours raised around a fetch: none is metered any more. Never raises."""
        self.tally = None
        with contextlib.suppress(Exception):
            self._on_error(error)


class WorkerMeter(Meter):
    """The meter of a worker process: the fetches of its main thread go into its slot while a run goes on."""

    cpu_clock = staticmethod(time.process_time)
    renews = True

    def __init__(self, file: SlotFile, slot: int) -> None:
        here = get_ident()
        super().__init__(lambda: here, on_error=self._fail)
        self._file, self._slot = file, slot
        self._generation = 0.0
        self._lines: FetchLines | None = None
        self._fetching = self._broken = False

    def begins(self, fetcher: Any) -> MeteredFetch | None:
        """None also when the run is over; a later run finds the workers that stayed by another generation."""
        if self._fetching or self._broken:
            return None
        generation = self._file.generation
        if generation != self._generation:
            self._renew(generation)
        fetch = super().begins(fetcher)
        self._fetching = fetch is not None
        return fetch

    def leave(self, fetch: MeteredFetch) -> None:
        """The fetch is over. Looks go on: whether a fetch runs, they see by themselves."""
        self._fetching = False
        super().leave(fetch)

    def _renew(self, generation: float) -> None:
        self._generation = generation
        self._stop_looking()
        self.tally = None
        if generation:
            self.tally = self._file.tally(self._slot)
            file = self._file
            self._lines = FetchLines(self.tally.page, FLOOR, lambda: file.generation == generation)
            self._lines.start()

    def _fail(self, error: Exception) -> None:
        self._broken = True
        self._file.tally(self._slot).fail()  # the training process leaves a note
        self._stop_looking()

    def _stop_looking(self) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.stop()


class MeteredFetch:
    """A fetch while it runs."""

    __slots__ = (
        "_before",
        "_collate_cpu_s",
        "_collate_s",
        "_cost_ns",
        "_cpu_s",
        "_wall_s",
        "metered",
        "patches",
        "tally",
    )

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.metered = False
        self.patches = _NONE
        """Keeps a timed collate function on the fetcher."""

    def begin(self, fetcher: Any, meter: Meter) -> None:
        """Starts the clocks."""
        began = meter.clock()
        self._collate_s = self._collate_cpu_s = 0.0
        self._before = meter.counters.read()
        if hasattr(fetcher, "collate_fn"):
            self.patches = Patches()
            self.patches.wrap(fetcher, "collate_fn", functools.partial(self._timed, meter.cpu_clock))
        self.metered = True
        self._cost_ns = meter.clock() - began
        self._cpu_s, self._wall_s = meter.cpu_clock(), time.perf_counter()

    def end(self, meter: Meter) -> int:
        """Stops the clocks and adds the fetch to its tally; returns what metering it has taken, in ns."""
        wall_s, ended = time.perf_counter() - self._wall_s, meter.clock()
        cpu_s = meter.cpu_clock() - self._cpu_s
        self.patches.restore()
        counts = [now - then for now, then in zip(meter.counters.read(), self._before, strict=True)]
        cost_ns = self._cost_ns + meter.clock() - ended
        self.tally.add(wall_s, (cpu_s, self._collate_s, self._collate_cpu_s), counts, cost_ns * 1e-9)
        return cost_ns

    def _timed(self, cpu_clock: Callable[[], float], collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def collate_timed(data: Any) -> Any:
            __tracebackhide__ = True
            begin, cpu_begin = time.perf_counter(), cpu_clock()
            try:
                return collate(data)
            finally:
                self._collate_cpu_s += cpu_clock() - cpu_begin
                self._collate_s += time.perf_counter() - begin

        return collate_timed


_NONE: Final = Patches()


def metered(original: Callable[[Any, Any], Any], meter: Meter) -> Callable[[Any, Any], Any]:
    """A fetcher's `fetch`, metered; a fence as in `fence.py`, written out for code of its own (see `FLOOR`)."""
    original = getattr(original, UNDER, original)

    @functools.wraps(original)
    def fetch(self: Any, index: Any) -> Any:
        __tracebackhide__ = True
        if meter.tally is None and not meter.renews:
            return original(self, index)
        token = None
        try:
            token = meter.begins(self)
        except Exception as error:
            meter.broke(error)
        if token is None:
            return original(self, index)
        try:
            batch = original(self, index)
        except BaseException:
            try:
                meter.leave(token)
            except Exception as error:
                meter.broke(error)
            raise
        try:
            meter.ends(token)
        except Exception as error:
            meter.broke(error)
        except BaseException:  # an interrupt
            meter.leave(token)
            raise
        return batch

    setattr(fetch, UNDER, original)
    return fetch


def meter_class(patches: Patches, kind: Any, meter: Meter) -> None:
    """Puts the meter on a class of fetchers: once, whichever class it inherits `fetch` from.

    A forked worker inherits the training process' wrapper: the meter goes on what is under it.
    """
    patches.wrap(kind, "fetch", lambda original: metered(original, meter))


def _nothing(fetcher: Any, index: Any) -> None:
    return None


FLOOR: Final = metered(_nothing, Meter()).__code__
"""The code of every metered fetch: what lies above it on a stack belongs to the fetch."""
