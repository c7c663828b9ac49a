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
import sys
import threading
from typing import Final

SWITCH_S: Final = 5e-5
"""Switch interval while looking; Python's default is 5 ms."""
PYTHONS_S: Final = 5e-3
_SET_TIMER_SLACK: Final = 29
_SLACK_NS: Final = 1000


class QuickLooks:
    """The short switch interval, on while the threads of the process are those that may be there."""

    def __init__(self, threads: int) -> None:
        """Args: threads: so many Python threads besides our own may run without being hurt by the short interval."""
        self._threads = threads
        self._usual_s = 0.0
        self._lock = threading.Lock()

    def mind(self) -> None:
        """Sets the short interval, or puts the usual one back if further threads have come; cheap."""
        if foreign_threads() > self._threads:
            self.end()
        elif not self._usual_s and sys.getswitchinterval() > SWITCH_S:
            with self._lock:
                if self._threads:
                    self._usual_s = sys.getswitchinterval()
                    sys.setswitchinterval(SWITCH_S)

    def end(self, for_good: bool = False) -> None:
        """Puts the usual interval back, unless somebody else has changed it since."""
        with self._lock:
            if for_good:
                self._threads = 0
            usual_s, self._usual_s = self._usual_s, 0.0
            if usual_s and abs(sys.getswitchinterval() - SWITCH_S) < 1e-6:
                sys.setswitchinterval(usual_s)


def foreign_threads() -> int:
    """Python threads of this process that are not ours."""
    return sum(not thread.name.startswith("gpu_doctor") for thread in threading.enumerate())


def usual_again() -> None:
    """Python's own interval where a process was forked while its parent kept it short."""
    if abs(sys.getswitchinterval() - SWITCH_S) < 1e-6:
        sys.setswitchinterval(PYTHONS_S)


def punctual() -> None:
    """Timers of the calling thread fire at their time and not up to 50 us later; where the kernel can (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, _SLACK_NS, 0, 0, 0)
