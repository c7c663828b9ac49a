"""Scratch files of runs, and what is left of runs that were killed: the next one takes it away.

Whoever maps a scratch file holds a shared lock on it, which the system gives up when a process ends, however it ends:
no process id that may be another program's by now, and it holds between containers that share a folder.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment, unused-ignore]

PREFIX: Final = "gpu_doctor-"
SUFFIX: Final = ".fetches"
OLD_S: Final = 60.0
"""A younger file may have been made just now, and not be held yet."""


def made(size: int) -> str:
    """The path of a new scratch file, after those that nobody uses any more were removed; it is sparse.

    Raises:
        OSError: if none can be made.
    """
    sweep()
    descriptor, path = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX)
    try:
        os.truncate(descriptor, size)
    finally:
        os.close(descriptor)
    return path


def hold(descriptor: int) -> None:
    """The file is in use until this descriptor is closed, and every copy that a mapping or a forked process has."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks: there `sweep` gets none either
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def sweep() -> None:
    """Removes this user's old scratch files that no living process holds; what cannot be removed stays."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    _remove_unused(entry)


def _remove_unused(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or time.time() - found.st_mtime < OLD_S:
        return
    if fcntl is None:  # the system itself refuses to remove a file that is mapped
        Path(entry.path).unlink()
    elif found.st_uid == os.getuid():
        descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(entry.path).unlink()
        finally:
            os.close(descriptor)
