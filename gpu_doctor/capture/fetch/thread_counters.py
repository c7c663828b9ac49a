"""The kernel's counters of the calling thread: seconds queued for a core, bytes read from files and from storage.

They are read from `/proc` (Linux). Each file is opened once per process and thread and read in place; a forked process
opens its own. A counter that cannot be read is NaN, and nothing here raises.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import Final

try:
    from resource import RUSAGE_THREAD, getrusage  # type: ignore[attr-defined, unused-ignore]
except ImportError:  # macOS and Windows do not count a thread's usage
    getrusage = None  # type: ignore[assignment, unused-ignore]

INBLOCK_BYTES: Final = 512
"""Size of the units in which Linux counts `ru_inblock`, in bytes."""
_NAN: Final = float("nan")
_LONGEST: Final = 512


class ThreadCounters:
    """The counters of the thread that calls `read`."""

    def __init__(self) -> None:
        self._pid = self._thread = -1
        self._schedstat = self._io = -1
        self._own_bytes = 0

    def read(self) -> tuple[float, float, float]:
        """Returns seconds queued for a core, bytes read from files, and bytes read from storage.

        All count from the thread's start; NaN = not counted here. Bytes that this method itself reads are left out.
        """
        if self._thread != get_ident() or self._pid != os.getpid():
            self._open()
        queued = read = stored = _NAN
        try:
            if self._schedstat >= 0:
                text = os.pread(self._schedstat, _LONGEST, 0)
                self._own_bytes += len(text)
                queued = int(text.split()[1]) * 1e-9
            if self._io >= 0:
                text = os.pread(self._io, _LONGEST, 0)
                fields = text.split()  # rchar: N wchar: N syscr: N syscw: N read_bytes: N ...
                read, stored = float(int(fields[1]) - self._own_bytes), float(fields[9])
                self._own_bytes += len(text)
        except (OSError, ValueError, IndexError):
            return queued, read, stored
        if stored != stored and getrusage is not None:
            stored = float(getrusage(RUSAGE_THREAD).ru_inblock * INBLOCK_BYTES)
        return queued, read, stored

    def _open(self) -> None:
        """Opens the calling thread's files, and starts to count this object's own reads anew."""
        self.close()
        self._pid, self._thread, self._own_bytes = os.getpid(), get_ident(), 0
        self._schedstat = _opened("/proc/thread-self/schedstat")
        self._io = _opened("/proc/thread-self/io")

    def close(self) -> None:
        """Closes the files; a later `read` opens them again."""
        for descriptor in (self._schedstat, self._io):
            if descriptor >= 0 and self._pid == os.getpid():
                os.close(descriptor)
        self._schedstat = self._io = self._thread = -1


def _opened(path: str) -> int:
    """Returns a descriptor of a file, or -1 if there is no such file (macOS, some containers)."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return -1
