"""Gives a thread that samples another's stack the GIL at once, so that it sees the line that is running.

A look that falls due while the other thread computes must wait for the interpreter's lock, by default 5 ms, or until
the other thread gives it up by itself: in a call that waits. Such calls would then be blamed for all that computes
between them (measured: 0.7 ms of Python and 0.3 ms of sleep a sample showed as 3 % and 97 %). With a short switch
interval, and without the kernel's slack on the look's timers, the look comes within some 0.1 ms. The interval is a
setting of the whole process: it is kept short only while no other threads of the user's run Python, which would switch
more often by it, and put back afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from typing import Final

LOOK_S: Final = 5e-5
"""Switch interval while looking at fetches; Python's default is 5 ms."""
_SET_TIMER_SLACK: Final = 29
_SLACK_NS: Final = 1000


class ShortInterval:
    """The process' switch interval while some of ours ask for a shorter one: the shortest that is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[int, float] = {}
        self._usual_s = self._ours_s = 0.0
        """The interval before any of ours asked, and the one that we have set."""

    def ask(self, who: object, seconds: float) -> None:
        """From here on it is no longer than so many seconds, for `who`."""
        with self._lock:
            if not self._asked:
                self._usual_s = self._ours_s = sys.getswitchinterval()
            self._asked[id(who)] = seconds
            self._set()

    def release(self, who: object) -> None:
        """`who` does not need it any more; the last one puts back what there was, unless the code has set its own."""
        with self._lock:
            if self._asked.pop(id(who), None) is not None:
                self._set()

    def forked(self) -> None:
        """In a child process: none of those who asked is there."""
        self._lock = threading.Lock()
        if self._asked:
            self._asked.clear()
            self._set()

    def _set(self) -> None:
        now_s, wanted_s = sys.getswitchinterval(), min([self._usual_s, *self._asked.values()])
        # It is kept in whole microseconds, rounded down: to set what was read may shorten it.
        if abs(now_s - self._ours_s) < 1e-9 and abs(wanted_s - now_s) > 1e-6:
            sys.setswitchinterval(wanted_s)
            self._ours_s = sys.getswitchinterval()


INTERVAL: Final = ShortInterval()
if hasattr(os, "register_at_fork"):  # Windows has none
    os.register_at_fork(after_in_child=INTERVAL.forked)


class QuickLooks:
    """The short interval, on while the threads of the process are those that may be there."""

    def __init__(self, threads: int) -> None:
        """Args: threads: so many Python threads besides our own may run without being hurt by the short interval."""
        self._threads = threads
        self._on = False

    def mind(self) -> None:
        """Asks for the short interval, or puts the usual one back if further threads have come; cheap."""
        if foreign_threads() > self._threads:
            self.end()
        elif not self._on and self._threads:
            self._on = True
            INTERVAL.ask(self, LOOK_S)

    def end(self, for_good: bool = False) -> None:
        """Puts the usual interval back, unless somebody else has changed it since."""
        if for_good:
            self._threads = 0
        self._on = False
        INTERVAL.release(self)


def foreign_threads() -> int:
    """Python threads of this process that are not ours."""
    return sum(not thread.name.startswith("gpu_doctor") for thread in threading.enumerate())


def punctual() -> None:
    """Timers of the calling thread fire at their time and not up to 50 us later; where the kernel can (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, _SLACK_NS, 0, 0, 0)
