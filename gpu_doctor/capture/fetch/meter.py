"""Measures fetches: their clocks, the kernel's counters, the collate, and in workers the lines.

A fetch is metered in full or not at all. The meter measures its own cost, and the `Tally` skips enough fetches to keep
the cost below its share of the fetch time.
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
"""Attribute of our wrapper that holds the original `fetch`."""


class Meter:
    """Measures the fetches of one thread and adds them to the present tally."""

    cpu_clock = staticmethod(time.thread_time)
    renews = False
    """True if `begins` sets the tally itself, so that it must be called even without one."""

    def __init__(
        self,
        thread: Callable[[], int] = get_ident,
        clock: Callable[[], int] = time.perf_counter_ns,
        on_error: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Measures nothing yet.

        Args:
            thread: returns the id of the thread whose fetches are measured.
            clock: clock in ns, for the cost of metering.
            on_error: called with an error of our own.
        """
        self.tally: Tally | None = None
        """Tally that fetches are added to; None = they are not measured."""
        self.clock = clock
        self.cost_ns = 0
        """Time that metering has taken since the last call of `off`, in ns."""
        self.counters = ThreadCounters()
        self._thread, self._on_error = thread, on_error

    def off(self) -> int:
        """Stops measuring; returns the time that metering has taken since the last call, in ns."""
        cost_ns, self.tally, self.cost_ns = self.cost_ns, None, 0
        return cost_ns

    def begins(self, fetcher: Any) -> MeteredFetch | None:
        """Starts to measure a fetch; None on another thread or without a tally. Inner fetches are part of it."""
        tally = self.tally
        if tally is None or get_ident() != self._thread():
            return None
        self.tally = None
        fetch = MeteredFetch(tally)
        if tally.to_skip <= 0:
            try:
                fetch.begin(fetcher, self)
            except BaseException:
                fetch.patches.restore()
                raise
        return fetch

    def ends(self, fetch: MeteredFetch) -> None:
        """Adds a fetch that has returned to its tally, or counts it as skipped."""
        try:
            if fetch.metered:
                self.cost_ns += fetch.end(self)
            else:
                fetch.tally.to_skip -= 1
        finally:
            self.leave(fetch)

    def leave(self, fetch: MeteredFetch) -> None:
        """Restores the state before a fetch; a fetch that raised is not added."""
        fetch.patches.restore()
        self.tally = fetch.tally

    def broke(self, error: Exception, fetch: MeteredFetch | None = None) -> None:
        """Stops measuring after an error of our own and takes the timed collate off the fetcher; never raises."""
        self.tally = None
        if fetch is not None:
            with contextlib.suppress(Exception):
                fetch.patches.restore()
        with contextlib.suppress(Exception):
            self._on_error(error)


class WorkerMeter(Meter):
    """Meter of a worker process: adds the fetches of its main thread to its slot while a run goes on."""

    cpu_clock = staticmethod(time.process_time)
    renews = True

    def __init__(self, file: SlotFile, slot: int) -> None:
        """Measures the calling thread's fetches into `slot` of `file`."""
        here = get_ident()
        super().__init__(lambda: here, on_error=self._fail)
        self._file, self._slot = file, slot
        self._run_began = 0.0
        self._lines: FetchLines | None = None
        self._fetching = self._broken = False

    def begins(self, fetcher: Any) -> MeteredFetch | None:
        """Starts to measure a fetch; None also if the run is over. A new `run_began` in the file starts a new run."""
        if self._fetching or self._broken:
            return None
        run_began = self._file.run_began
        if run_began != self._run_began:
            self._renew(run_began)
        fetch = super().begins(fetcher)
        self._fetching = fetch is not None
        return fetch

    def leave(self, fetch: MeteredFetch) -> None:
        """Restores the state before a fetch. Stack samples go on, as they find out themselves whether a fetch runs."""
        self._fetching = False
        super().leave(fetch)

    def _renew(self, run_began: float) -> None:
        """Starts to measure for the run that began at `run_began`; 0.0 = stops."""
        self._run_began = run_began
        self._stop_sampling()
        self.tally = None
        if run_began:
            self.tally = self._file.tally(self._slot)
            file = self._file
            self._lines = FetchLines(self.tally.page, FLOOR, lambda: file.run_began == run_began)
            self._lines.start()

    def _fail(self, error: Exception) -> None:
        """Stops for good after an error of our own, and marks the slot as failed."""
        self._broken = True
        self._file.tally(self._slot).fail()  # the training process leaves a note
        self._stop_sampling()

    def _stop_sampling(self) -> None:
        """Stops the thread that samples the stack."""
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.stop()


class MeteredFetch:
    """A fetch that is running."""

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
        """Patches that put a timed collate function on the fetcher."""

    def begin(self, fetcher: Any, meter: Meter) -> None:
        """Reads the clocks and counters before the fetch, and puts a timed collate on the fetcher."""
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
        """Reads the clocks again and adds the fetch to its tally; returns the time that metering it took, in ns."""
        wall_s, ended = time.perf_counter() - self._wall_s, meter.clock()
        cpu_s = meter.cpu_clock() - self._cpu_s
        self.patches.restore()
        counts = [now - then for now, then in zip(meter.counters.read(), self._before, strict=True)]
        cost_ns = self._cost_ns + meter.clock() - ended
        self.tally.add(wall_s, (cpu_s, self._collate_s, self._collate_cpu_s), counts, cost_ns * 1e-9)
        return cost_ns

    def _timed(self, cpu_clock: Callable[[], float], collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Returns a collate function that adds its wall and CPU seconds to this fetch."""

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
    """Wraps a fetcher's `fetch` with the meter, fenced as in `fence.py`; written out to have its own code (`FLOOR`)."""
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
                meter.broke(error, token)
            raise
        try:
            meter.ends(token)
        except Exception as error:
            meter.broke(error, token)
        except BaseException:  # an interrupt
            meter.leave(token)
            raise
        return batch

    setattr(fetch, UNDER, original)
    return fetch


def meter_class(patches: Patches, kind: Any, meter: Meter) -> None:
    """Puts the meter on a class of fetchers, once, whichever class it inherits `fetch` from.

    A forked worker inherits the training process' wrapper: the meter then wraps the function under that wrapper.
    """
    patches.wrap(kind, "fetch", lambda original: metered(original, meter))


def _nothing(fetcher: Any, index: Any) -> None:
    """A fetch that does nothing, only to get the code of its wrapper."""
    return


FLOOR: Final = metered(_nothing, Meter()).__code__
"""Code of every metered fetch: the frames above it on a stack belong to the fetch."""
