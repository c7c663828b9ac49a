"""What stands at a path, and how much of it is kept aside, in a form that a forked process can tell its parent."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ABSENT: Final = "absent"
FILE: Final = "file"
FOLDER: Final = "folder"
LINK: Final = "link"
OTHER: Final = "other"
"""A pipe, a device, or what cannot be looked at: it is left alone."""

CONTENT: Final = "content"
"""It may be overwritten in place."""
APPEND: Final = "append"
"""It may grow."""
NAME: Final = "name"
"""It may be deleted, replaced or called otherwise."""
MARKS: Final = "marks"
"""Its mode or its times may change, or it gets another name beside its own."""
NEW: Final = "new"
"""Something is made there, where nothing is."""


@dataclass
class Was:
    """What stood at a path before the cell touched it."""

    path: str
    kind: str
    device: int = 0
    number: int = 0
    """Of the inode."""
    mode: int = 0
    size: int = 0
    """Bytes of a file."""
    accessed_ns: int = 0
    modified_ns: int = 0
    target: str = ""
    """Of a symbolic link."""
    link: str = ""
    """Name, aside, of a hard link to the file: it brings the very file back where it was deleted or replaced."""
    copy: str = ""
    """Name, aside, of a copy of its bytes; empty where nothing but an append can have changed them."""

    @property
    def inode(self) -> tuple[int, int]:
        """Which file it is, whatever it is called."""
        return self.device, self.number

    @property
    def is_held(self) -> bool:
        """Whether it can be brought back after it is gone from its path."""
        return bool(self.link or self.copy)

    def same(self, now: Was) -> bool:
        """Whether what stands there now is still this, so that what is kept aside of it holds."""
        mine, its = asdict(self), asdict(now)
        return all(mine[name] == its[name] for name in mine.keys() - {"link", "copy", "accessed_ns"})

    def is_also(self, other: Was) -> None:
        """The file had another name, by which it may have been changed already: `other` is as it was before."""
        self.mode, self.size, self.copy = other.mode, other.size, other.copy
        self.accessed_ns, self.modified_ns = other.accessed_ns, other.modified_ns

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def look(path: str) -> Was:
    """What stands at a path now; a symbolic link is not followed."""
    try:
        found = os.lstat(path)
        target = str(Path(path).readlink()) if stat.S_ISLNK(found.st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        return Was(path, ABSENT)
    except (OSError, ValueError):
        return Was(path, OTHER)
    kinds = ((stat.S_ISREG, FILE), (stat.S_ISDIR, FOLDER), (stat.S_ISLNK, LINK))
    kind = next((kind for is_kind, kind in kinds if is_kind(found.st_mode)), OTHER)
    size = found.st_size if kind == FILE else 0
    # A folder's time is that of its newest entry, and put back apart.
    times = (found.st_atime_ns, found.st_mtime_ns) if kind != FOLDER else (0, 0)
    return Was(path, kind, found.st_dev, found.st_ino, stat.S_IMODE(found.st_mode), size, *times, target)


def remove(now: Was) -> None:
    """Takes away what stands at a path, a folder with all that is in it."""
    if now.kind == FOLDER:
        shutil.rmtree(now.path)
    elif now.kind != ABSENT:
        Path(now.path).unlink()


def path_of(place: int) -> str | None:
    """Path under which a descriptor's file stands now; None where the system does not tell."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(place, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    path = str(Path(f"/proc/self/fd/{place}").readlink()) if Path("/proc/self/fd").is_dir() else ""
    return path if path.startswith(os.sep) and not path.endswith(" (deleted)") else None


def working_folder() -> Path | None:
    """The folder that relative paths begin in; None where it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None
