"""Scratch files of runs; those of killed runs are removed by the next run.

A process that maps a scratch file holds a shared lock on it, which the system releases when the process ends, in any
way. Unlike a process id, a lock cannot be mistaken for another program's, and it works between containers that share
a folder.
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
"""Least age, in seconds, of a file to remove: a younger one may not be locked yet."""


def make_file(size: int) -> str:
    """Makes a sparse scratch file of `size` bytes and returns its path; removes unused old ones first.

    Raises:
        OSError: if no file can be made.
    """
    sweep()
    descriptor, path = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX)
    try:
        os.truncate(descriptor, size)
    finally:
        os.close(descriptor)
    return path


def hold(descriptor: int) -> None:
    """Locks a file as in use, until the descriptor and all its copies, in mappings and forked processes, are closed."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks: `sweep` gets none there, either
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def sweep() -> None:
    """Removes this user's old scratch files that no process has locked; a file that cannot be removed stays."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    _remove_unused(entry)


def _remove_unused(entry: os.DirEntry[str]) -> None:
    """Removes a scratch file if it is old and no process has locked it.

    Raises:
        OSError: if the file is locked or cannot be removed.
    """
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
