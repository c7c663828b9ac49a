"""Which lines of the user's code the fetches go to: looks at the fetching thread's stack while a fetch runs.

A daemon thread of the process that fetches (a worker, or the training process) looks about forty times a second,
slower where looks are dear, and sleeps without waking while nothing is fetched. A look comes late when the fetching
thread computes: it needs Python's lock, and on a busy machine a core, and gets both sooner when that thread waits. So
looks are kept in two pools, by what the kernel says of the thread right after the look (it runs or could run; it
sleeps), and late looks at a sleeping thread are dropped. How much of a fetch is computing and how much is waiting is
not taken from looks at all but from the kernel's counters.

What was seen lies as text in a page (of the worker's slot in the mapped file, see `page.py`), written ever more
rarely as it grows, so that it is there however the worker ends.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from _thread import allocate_lock
from types import CodeType
from typing import Final

from gpu_doctor.capture.lines.page import read_page, write_page
from gpu_doctor.capture.lines.places import Place, Places
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.lines.switch_interval import QuickLooks, punctual

PERIOD_S: Final = 0.025
"""Mean seconds between looks, at least."""
BUDGET_SHARE: Final = 0.004
"""Part of a fetch that looking may take on the looking thread's own CPU clock."""
LONGEST_PERIOD_S: Final = 0.5
IDLE_TICKS: Final = 20
"""After so many looks at a process that fetches nothing the thread sleeps until a fetch wakes it."""
LATE_S: Final = 3e-4
"""A look that comes later than this met a thread that computed when it was due."""
MOST_LINES: Final = 2048
REWRITE: Final = 1.05
"""The page is written anew when what was seen has grown by so much, or by so many seconds:"""
REWRITE_S: Final = 1.0
WORKER_THREADS: Final = 3
"""Python threads of a worker besides ours: the main one, the feeder of torch's queue, the server of its file
descriptors. With more, the dataset has threads of its own."""
_SYNCHRONOUS: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT")


class FetchLines:
    """Looks at one thread's stack; `begin` and `end` tell between which times fetches run."""

    def __init__(
        self, page: memoryview, floor: CodeType, threads: int = WORKER_THREADS, period_s: float = PERIOD_S
    ) -> None:
        """Looks at the calling thread and writes to `page`, going on from what is there.

        Args:
            page: see `page.py`.
            floor: code of the fetch.
            threads: Python threads of this process besides ours.
            period_s: mean seconds between looks, at least.
        """
        self.fetching = False
        """A fetch may run: whether it does, the stack says."""
        self.page = page
        self._shortest_s = period_s
        self._places = Places(floor)
        self.thread = threading.get_ident()
        self._stat = f"/proc/self/task/{threading.get_native_id()}/stat"
        self._state = -1
        self._active_s, self._blocked_s, seen = read_page(page)
        self._seen: dict[Place, list[float]] = {key: [active, blocked] for key, active, blocked in seen}
        self._written_s = self._active_s + self._blocked_s
        self._over = self.asleep = False
        self._wake = allocate_lock()
        self._wake.acquire()
        self._quick = QuickLooks(threads)
        self._looker: threading.Thread | None = None
        self._random = random.Random()  # an own one: the user's random state must not move
        self.cpu_s = 0.0
        """CPU seconds that the looking thread used."""

    def start(self) -> None:
        """Starts the thread, once; it ends with the process, or with `stop`."""
        if self._looker is not None or self._over:
            return
        self._looker = threading.Thread(target=self._run, name="gpu_doctor-lines", daemon=True)
        self._looker.start()

    def begin(self) -> None:
        """A fetch begins."""
        self.fetching = True
        if self.asleep:
            self.asleep = False
            with contextlib.suppress(RuntimeError):  # the thread woke up by itself meanwhile
                self._wake.release()

    def end(self) -> None:
        """The fetch has ended."""
        self.fetching = False

    def stop(self, patience_s: float = 0.0) -> None:
        """Ends the thread and waits `patience_s` for it; the switch interval is as before when this returns."""
        self._over = True
        self.fetching = False
        self._quick.end(for_good=True)
        with contextlib.suppress(RuntimeError):
            self._wake.release()
        if self._looker is not None and patience_s:
            self._looker.join(patience_s)
        self.write()

    def _run(self) -> None:
        _take_no_signals()
        punctual()
        clock, period_s, idle, cost_s = time.perf_counter, self._shortest_s, 0, 0.0
        try:
            self.open()
            while not self._over:
                self._quick.mind()
                # A fixed period would beat with a fetch of the same period and see the same line each time.
                wait_s = period_s * self._random.uniform(0.8, 1.2)
                due_s = clock() + wait_s
                self._wake.acquire(True, wait_s)
                begin_s = time.thread_time()  # Python's garbage collection may have run here while we waited
                if self.fetching and self.look(period_s, clock() - due_s):
                    idle = 0
                else:
                    idle += 1
                self.cpu_s = time.thread_time()
                cost_s += 0.2 * (self.cpu_s - begin_s - cost_s)
                period_s = min(max(self._shortest_s, cost_s / BUDGET_SHARE), LONGEST_PERIOD_S)
                if idle >= IDLE_TICKS:
                    self.write()
                    self._quick.end()
                    self.fetching, self.asleep = False, True
                    if not self.fetching and not self._over:
                        self._wake.acquire()
                    self.asleep, idle = False, 0
        except Exception:  # a thread of ours never speaks up in a worker: without it there are no lines, no more
            self._over = True
        finally:
            self._quick.end(for_good=True)
            if self._state >= 0:
                os.close(self._state)

    def open(self) -> None:
        """Opens what the kernel says of the thread; without it all looks count as computing."""
        with contextlib.suppress(OSError):
            self._state = os.open(self._stat, os.O_RDONLY)

    def look(self, period_s: float, late_s: float) -> bool:
        """One look, `late_s` after it was due; it stands for the period, and for a stretch that could not be seen.

        Returns:
            Whether a fetch was running.
        """
        stack = stack_of(self.thread)
        frame = stack[0] if stack else None
        if not self.fetching or self._over or not self._places.above(frame):
            return False
        place = self._places.of(frame)
        blocked = self._sleeping()
        if self._sleeping() != blocked or (blocked and late_s > LATE_S):
            return True  # it went to sleep, or woke up, just now: that line is not the one that the look was due for
        seconds = period_s + (0.0 if blocked else max(late_s, 0.0))
        if blocked:
            self._blocked_s += seconds
        else:
            self._active_s += seconds
        if place is not None:
            found = self._seen.get(place)
            if found is None and len(self._seen) < MOST_LINES:
                found = self._seen[place] = [0.0, 0.0]
            if found is not None:
                found[blocked] += seconds
        if self._active_s + self._blocked_s >= min(self._written_s * REWRITE, self._written_s + REWRITE_S):
            self.write()
        return True

    def _sleeping(self) -> bool:
        """Whether the thread waits for something else than Python's lock; False where the kernel does not say.

        Reading gives the lock away: a thread that only waited for it can run again before the kernel answers.
        """
        if self._state < 0:
            return False
        try:
            text = os.pread(self._state, 128, 0)
        except OSError:
            return False
        return text[text.rfind(b")") + 2 :][:1] in b"SD"

    def write(self) -> None:
        """Puts the dearest lines into the page."""
        self._written_s = self._active_s + self._blocked_s
        write_page(self.page, self._active_s, self._blocked_s, self._seen)


def _take_no_signals() -> None:
    """Signals meant for the process go to its main thread, as before; those that a fault raises stay."""
    if hasattr(signal, "pthread_sigmask"):
        kept = {getattr(signal, name, None) for name in _SYNCHRONOUS}
        signal.pthread_sigmask(signal.SIG_BLOCK, {one for one in signal.valid_signals() if one not in kept})
