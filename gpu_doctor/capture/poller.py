"""Our thread that reads the machine: probes twice a second, the training thread's stack far more often.

The rates are fixed: about 50 stack samples a second at the start of a run, fewer as it goes on, and two readings a
second. A run of a minute pays at most 0.3 % of one core: after an expensive sample or reading, the next one comes later
(see `Pace`). The thread holds no lock while it works, so a DataLoader worker may be forked at any moment.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.capture.lines.pace import JITTER, Pace
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.lines.switch_interval import INTERVAL, punctual
from gpu_doctor.machine import Probe, ProbeScope, Reader
from gpu_doctor.recording import Metric

LOOKS: Final = 150
"""Number of stack samples after which their period grows with the run: the shares of lines are then right to a few
points, and each sample stands for the time since the one before (see `lines/sampler.py`)."""
LAST_READING_AFTER_S: Final = 0.1
"""Shortest time between the last two readings, in seconds: a share of a shorter time is noise."""
MOST_FINALIZING_S: Final = 30.0
"""Longest wait, at a run's end, for finalizers of the user's objects that run on our thread, in seconds. torch's takes
up to 5 s for each worker if a loader's iterator is in a cycle of references."""


def look_pace() -> Pace:
    """Returns the pace of stack samples of the training thread.

    At 150 us a sample, a run of 7 s has some 280 samples for 0.6 % of a core, a run of a minute 600 for 0.15 %: a share
    of 0.7 errs by 0.03. With half of that CPU time it erred by 0.06, and a line of 69 % was reported as 80 %.
    """
    return Pace(period_s=0.02, longest_s=0.5, first_s=0.03, share=0.002, dearest_s=1e-3)


def reading_pace() -> Pace:
    """Returns the pace of the probes' readings: however expensive they are, the plots should move now and then."""
    return Pace(period_s=0.5, longest_s=5.0, first_s=0.008, share=0.0008)


class _OpenProbe:
    """An open probe: its reader, and the stack that closes it."""

    def __init__(self, name: str, reader: Reader, stack: ExitStack) -> None:
        self.name, self.reader, self.stack = name, reader, stack


class Poller:
    """Reads probes and samples the training thread on a daemon thread from `start` to `stop`.

    `tick` is one turn of the thread; tests call it directly with clocks of their own.
    """

    def __init__(
        self,
        probes: Iterable[tuple[str, Probe]],
        add: Callable[[Metric, float, float], None],
        *,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
        sampler: Callable[[float], None] | None = None,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Opens and reads nothing before `start`.

        Args:
            probes: name and probe of each, as in `PROBES`.
            add: called with a metric, the host clock's seconds and the value, for each reading.
            note: called with a sentence for the footer.
            clock: host clock, in seconds.
            sampler: takes one stack sample of the training thread; its argument is the delay after the due time, in
                seconds.
            cpu_clock: CPU seconds of the calling thread.
        """
        self._probes, self._add, self._note, self._clock = tuple(probes), add, note, clock
        self._sampler, self._cpu_clock = sampler, cpu_clock
        self._open: list[_OpenProbe] = []
        self._thread: threading.Thread | None = None
        self._over = False
        self._wake = allocate_lock()
        self._wake.acquire()
        self._pid = os.getpid()
        self._random = random.Random()  # our own: the user's random state must not change
        self._next_look_s = self._next_reading_s = -math.inf
        self._began_s = math.inf
        self._due_s: float | None = None
        """Time at which the thread was to wake up, in seconds; None = it did not sleep."""
        self._last_reading_s = -math.inf
        self._look_pace, self._reading_pace = look_pace(), reading_pace()
        self._cpu_at: float | None = None
        self._discarding = False
        self.cpu_s = 0.0
        """CPU seconds that the thread used so far."""

    def start(self) -> None:
        """Starts the thread; the probes are opened and first read at once, on it."""
        if self._thread is not None:
            return
        if self._sampler is not None:
            INTERVAL.shorten(self)
        self._thread = threading.Thread(target=self._run, name="gpu_doctor-poller", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Ends the thread after a last reading and waits for it; never raises.

        Python collects garbage on whichever thread allocates memory. If finalizers of the user's objects run on our
        thread, the run's end waits for them, as it would without our thread; so no thread is left.

        Args:
            timeout: longest wait for a reading, in seconds.
        """
        thread = self._thread
        INTERVAL.put_back(self)
        if thread is None or os.getpid() != self._pid:  # in a forked child the thread and its event mean nothing
            return
        if not self._over:
            self._over = True
            self._wake.release()
        if thread is not threading.current_thread():
            with suppress(RuntimeError):  # an interrupt came while it was started: it ends, but cannot be waited for
                thread.join(timeout)
        if not thread.is_alive():
            return
        self._discarding = True  # later readings belong to no run
        finalized_s = _wait_for_finalizers(thread, timeout)
        if finalized_s:
            took = formatting.seconds(timeout + finalized_s)
            self._note(f"The end of the run waited {took} for Python to clear up objects, such as a loader's workers.")
        if thread.is_alive() or not finalized_s:
            self._note("A reading of the machine took too long and is missing from the recording.")

    def _run(self) -> None:
        """Reads until `stop`, then once more: the body of the thread."""
        punctual()
        try:
            self.open()
            wait_s = self.tick()
            while not self._waited(wait_s):
                wait_s = self.tick()
            if self._clock() - self._last_reading_s > LAST_READING_AFTER_S and not self._discarding:
                self._read()
        except Exception as error:
            self._note(f"The readings of the machine stopped: {error}")
        finally:
            self.close()
            self._count_cpu()

    def _waited(self, wait_s: float) -> bool:
        """Waits for the next turn; returns True if the thread is to end instead."""
        self._due_s = self._clock() + wait_s if wait_s > 0 else None
        self._wake.acquire(True, wait_s)
        return self._over

    def open(self) -> None:
        """Opens the probes; a probe that cannot be opened stays off and leaves a note."""
        self._count_cpu()
        scope = ProbeScope(note=self._note, clock=self._clock)
        for name, probe in self._probes:
            stack = ExitStack()
            try:
                reader = stack.enter_context(probe(scope))
            except Exception as error:
                self._note(f"The {name} probe could not be started: {error}")
                continue
            if reader is None:
                self._shut(name, stack)
            else:
                self._open.append(_OpenProbe(name, reader, stack))

    def close(self) -> None:
        """Closes the open probes."""
        while self._open:
            probe = self._open.pop()
            self._shut(probe.name, probe.stack)

    def tick(self) -> float:
        """Takes a stack sample of the training thread, and a reading of every probe, if they are due.

        Returns:
            Seconds to wait until the next turn.
        """
        self._count_cpu()  # used between two turns, such as by Python's garbage collection
        now = self._clock()
        self._began_s = min(self._began_s, now)
        if self._sampler is not None and now >= self._next_look_s:
            self._look()
            run_s = now - self._began_s
            period_s = self._look_pace.after(self._count_cpu(), run_s, run_s / LOOKS)
            # With a fixed period, a loop of the same period would show the same line each time.
            self._next_look_s = self._clock() + period_s * self._random.uniform(1 - JITTER, 1 + JITTER)
        now = self._clock()
        if now >= self._next_reading_s:
            self._read()
            self._next_reading_s = now + self._reading_pace.after(self._count_cpu(), now - self._began_s)
        next_s = self._next_reading_s if self._sampler is None else min(self._next_reading_s, self._next_look_s)
        return max(next_s - self._clock(), 0.0)

    def _look(self) -> None:
        """Takes one stack sample; an error ends the sampling and leaves a note."""
        assert self._sampler is not None
        late_s = 0.0 if self._due_s is None else self._clock() - self._due_s
        try:
            self._sampler(late_s)
        except Exception as error:
            self._sampler = None
            self._note(f"Line timings stopped: {error}. Other measurements go on.")

    def _read(self) -> None:
        """Reads every open probe; one that fails is closed and leaves a note."""
        for probe in tuple(self._open):
            at = self._last_reading_s = self._clock()
            try:
                for metric, value in probe.reader():
                    if math.isfinite(value) and not self._discarding:
                        self._add(metric, at, value)
            except Exception as error:
                self._open.remove(probe)
                self._note(f"The {probe.name} probe failed and was switched off: {error}")
                self._shut(probe.name, probe.stack)

    def _shut(self, name: str, stack: ExitStack) -> None:
        """Closes one probe; an error leaves a note."""
        try:
            stack.close()
        except Exception as error:
            self._note(f"The {name} probe could not be closed: {error}")

    def _count_cpu(self) -> float:
        """Returns the CPU seconds of the thread since the last call, and adds them to `cpu_s`."""
        now = self._cpu_clock()
        spent_s = 0.0 if self._cpu_at is None else max(now - self._cpu_at, 0.0)
        self._cpu_at = now
        self.cpu_s += spent_s
        return spent_s


def _wait_for_finalizers(thread: threading.Thread, poll_s: float) -> float:
    """Waits for a thread to end while a `__del__` runs on it.

    Args:
        thread: the thread that is to end.
        poll_s: seconds between two checks of the thread's stack.

    Returns:
        The seconds waited; 0 if no `__del__` runs on the thread.
    """
    begin = now = time.monotonic()
    while _finalizes(thread) and now - begin < MOST_FINALIZING_S:
        thread.join(poll_s)
        now = time.monotonic()
    if now > begin:
        thread.join(poll_s)  # the last check may have come between its last finalizer and its end
    return now - begin


def _finalizes(thread: threading.Thread) -> bool:
    """True if a `__del__` runs on a thread."""
    return any(frame.f_code.co_name == "__del__" for frame in stack_of(thread.ident or 0))
