"""What the kernel says of threads: who waits for a core, who sleeps (Linux; elsewhere nothing is known)."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

FUTEX: Final = (b"202", b"98")
"""Number of the system call by which threads wait for each other, on x86-64 and on 64-bit ARM (98 is `getrusage` on the
first, which waits for nothing)."""


class Kernel:
    """What the kernel says of threads (Linux; elsewhere nothing is known)."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._queued_ns = 0
        self._native: dict[int, int | None] = {}

    def queued_s(self) -> float:
        """Seconds that the calling thread waited for a core since this was last asked."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            queued_ns = int(self._read("/proc/thread-self/schedstat").split()[1])
            passed_ns, self._queued_ns = queued_ns - self._queued_ns, queued_ns
            return passed_ns * 1e-9
        return 0.0

    def sleeps(self, thread: int) -> bool:
        """Whether a thread sleeps, or waits for a device, a file or a connection.

        Who waits for another thread is left out: torch's operators wait so for the threads that compute with them. What
        waits for Python's lock does not count either: reading gives the lock away, and wakes it.
        """
        if thread not in self._native:
            found = (one.native_id for one in threading.enumerate() if one.ident == thread)
            self._native[thread] = next(found, None)
        with contextlib.suppress(OSError):
            text = self._read(f"/proc/self/task/{self._native[thread]}/stat")
            asleep = text[text.rfind(b")") + 2 :][:1] in (b"S", b"D")
            return asleep and self._call(self._native[thread]) not in FUTEX
        del self._native[thread]  # it has ended: another thread may have its id by now
        return False

    def _call(self, native: int | None) -> bytes:
        """Number of the system call in which a thread is; empty where that may not be read."""
        with contextlib.suppress(OSError):
            return self._read(f"/proc/self/task/{native}/syscall").split()[:1][0]
        return b""

    def _read(self, path: str) -> bytes:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        return os.pread(self._files[path], 512, 0)

    def close(self) -> None:
        """Closes what is open."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
