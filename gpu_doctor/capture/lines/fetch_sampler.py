"""Finds the lines that take the time of fetches in a loader's worker, by sampling the worker's main thread.

A daemon thread of the worker samples about forty times a second, and twice a second while nothing is fetched. As in the
training process (see `sampler.py`), each sample stands for the time since the one before, and the interpreter's switch
interval is short meanwhile. The line costs are written as text to a page of the worker's slot in the mapped file (see
`page.py`), more rarely as they grow, so that they are there however the worker ends.
"""

from __future__ import annotations

import random
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable
from types import CodeType
from typing import Final

from gpu_doctor.capture.lines.pace import JITTER, Pace
from gpu_doctor.capture.lines.page import read_page, write_page
from gpu_doctor.capture.lines.places import Places
from gpu_doctor.capture.lines.stacks import outwards, stack_of
from gpu_doctor.capture.lines.switch_interval import INTERVAL, punctual

IDLE_PERIOD_S: Final = 0.5
"""Time between samples while nothing is fetched, in seconds."""
IDLE_LOOKS: Final = 20
"""Number of samples in a row without a fetch after which that period applies."""
MOST_LINES: Final = 2048
"""Most lines whose time is stored."""
REWRITE: Final = 1.05
"""Growth of the sampled time, as a factor, after which the page is written again."""
REWRITE_S: Final = 1.0
"""Growth of the sampled time, in seconds, after which the page is written again in any case."""


class FetchLines:
    """Samples the stack of the thread that creates it, on a thread of its own, until the run or the process ends."""

    def __init__(
        self,
        page: memoryview,
        floor: CodeType,
        goes_on: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepares to sample the calling thread; the seconds that `page` already has are added to.

        Args:
            page: page of the worker's slot, see `page.py`.
            floor: code of the fetch: a stack without it runs no fetch.
            goes_on: returns True while the run goes on; called at every sample.
            clock: clock in seconds.
        """
        self._page, self._floor, self._goes_on, self._clock = page, floor, goes_on, clock
        self._places = Places(floor)
        self._thread = threading.get_ident()
        self._whole_s, rows = read_page(page)
        self._seen = dict(rows)
        self._written_s = self._whole_s
        self._before: float | None = None
        self._over = False
        self._wake = allocate_lock()
        self._wake.acquire()
        self._random = random.Random()  # our own: the user's random state must not change

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="gpu_doctor-lines", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread at once."""
        if not self._over:
            self._over = True
            self._wake.release()

    def _run(self) -> None:
        """Samples until the run ends or `stop`: the body of the thread."""
        pace = Pace(period_s=0.025, longest_s=IDLE_PERIOD_S, first_s=0.015, share=0.004, dearest_s=1e-3)
        idle, began = 0, self._clock()
        punctual()
        INTERVAL.shorten(self)
        try:
            while self._goes_on() and not self._over:
                cpu_s = time.thread_time()
                idle = 0 if self.sample() else idle + 1
                idle_s = IDLE_PERIOD_S if idle >= IDLE_LOOKS else 0.0
                wait_s = pace.after(time.thread_time() - cpu_s, self._clock() - began, idle_s)
                # With a fixed period, a fetch of the same period would show the same line each time.
                self._wake.acquire(True, wait_s * self._random.uniform(1 - JITTER, 1 + JITTER))
        except Exception:  # errors here must not reach the user's worker; only line timings are lost
            pass
        finally:
            INTERVAL.put_back(self)

    def sample(self) -> bool:
        """Takes one sample, which stands for the time since the one before.

        Returns:
            True if a fetch was running.
        """
        before, self._before = self._before, self._clock()
        stack = stack_of(self._thread)
        frame = stack[0] if stack else None
        if not any(caller.f_code is self._floor for caller in outwards(frame)):
            return False
        place = self._places.of(frame)
        del stack, frame
        seconds = 0.0 if before is None else self._before - before
        self._whole_s += seconds
        if place is not None and (place in self._seen or len(self._seen) < MOST_LINES):
            self._seen[place] = self._seen.get(place, 0.0) + seconds
        grown = self._whole_s >= min(self._written_s * REWRITE, self._written_s + REWRITE_S)
        if grown and not self._over and self._goes_on():  # else another sampler owns the page
            self.write()
        return True

    def write(self) -> None:
        """Writes the most expensive lines to the page."""
        self._written_s = self._whole_s
        write_page(self._page, self._whole_s, self._seen)
