"""Reads the state of threads from the kernel: waiting for a core, sleeping (Linux; elsewhere it is unknown)."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

FUTEX: Final = (b"202", b"98")
"""Numbers of the system call with which threads wait for each other, on x86-64 and on 64-bit ARM (98 is `getrusage` on
x86-64, which never waits)."""


class Kernel:
    """Reads the state of this process' threads from the kernel; only on Linux."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._queued_ns = 0
        self._native: dict[int, int | None] = {}

    def queued_s(self) -> float:
        """Returns the seconds that the calling thread waited for a core since the last call; 0 if unknown."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            queued_ns = int(self._read("/proc/thread-self/schedstat").split()[1])
            passed_ns, self._queued_ns = queued_ns - self._queued_ns, queued_ns
            return passed_ns * 1e-9
        return 0.0

    def sleeps(self, thread: int) -> bool:
        """True if a thread sleeps, or waits for a device, a file or a connection; False if unknown.

        A wait for another thread does not count: torch's operators wait that way for the threads that compute with
        them. A wait for Python's lock does not count either, as this read releases the lock and wakes the thread.
        """
        if thread not in self._native:
            found = (
                thread_object.native_id for thread_object in threading.enumerate() if thread_object.ident == thread
            )
            self._native[thread] = next(found, None)
        with contextlib.suppress(OSError):
            text = self._read(f"/proc/self/task/{self._native[thread]}/stat")
            asleep = text[text.rfind(b")") + 2 :][:1] in (b"S", b"D")
            return asleep and self._call(self._native[thread]) not in FUTEX
        del self._native[thread]  # the thread has ended: another one may have its id by now
        return False

    def _call(self, native: int | None) -> bytes:
        """Returns the system call that a thread is in, as `b"202"` or `b"running"`; empty if it may not be read."""
        with contextlib.suppress(OSError):
            return self._read(f"/proc/self/task/{native}/syscall").split()[:1][0]
        return b""

    def _read(self, path: str) -> bytes:
        """Reads the start of a file, which stays open for the next read."""
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        return os.pread(self._files[path], 512, 0)

    def close(self) -> None:
        """Closes the open files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
