"""Files that code writes, replaces or deletes in this process while it is watched: a trial cannot take that back.

Python's own ways of opening a file (`open`, `os.open`, and all that stands on them: pathlib, numpy, pandas, PIL) are
watched, renaming and deleting, and the writers of torch and safetensors, which open files past Python. Processes that
are forked meanwhile, such as a loader's workers, tell what they write in a file without a name that they inherit. Not
seen is what other writers in C open (sqlite3, h5py, most of OpenCV), what processes write that were started before or
otherwise, and what goes to a file that was open.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gpu_doctor.capture import Patches

_WRITES: Final = frozenset("wax+")
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ELSEWHERE: Final = ("/dev/", "/proc/", "/sys/")
"""What looks like a file and is none."""
_CACHES: Final = ("__pycache__", ".cache", ".triton", ".nv", ".ipython", "torchinductor_")
"""Folders in which libraries keep what they can make again; a name that begins with one of these."""
_BY_PATH: Final = (
    ("torch.serialization", "_open_zipfile_writer", 0),
    ("torch.jit", "save", 1),
    ("safetensors.torch", "save_file", 1),
    ("safetensors.numpy", "save_file", 1),
    ("cv2", "imwrite", 0),
)
"""Functions that open a file past Python: module, name, and which argument is the path."""
_OPENS: Final = (("builtins", "open"), ("io", "open"), ("IPython.core.interactiveshell", "io_open"))
"""The last is what the `open` of a notebook's cells calls: IPython gives them one of its own."""


class WrittenFiles:
    """Context manager; afterwards `paths` has what was written, and `deleted` what was there before and is gone.

    The wrappers change nothing: arguments, results and exceptions are the original's.
    """

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()
        """Each once, in the order of the first write; relative where they are under the working folder."""
        self.deleted: tuple[str, ...] = ()
        self._seen: dict[str, bool] = {}
        """Absolute path -> whether it was there before."""
        self._patches = Patches()
        self._folder = _folder()
        self._temporary = _temporary_folder()  # asked now: the look for it opens files, under a lock of its own
        self._process = os.getpid()
        self._told: Any = None
        """What forked processes tell: `1path` where something was there before, `0path` else, each ended by NUL."""
        self._identity: tuple[int, int] | None = None

    def __enter__(self) -> WrittenFiles:
        try:
            with contextlib.suppress(OSError):  # nowhere to write to: then nobody tells
                self._told = tempfile.TemporaryFile() if hasattr(os, "fork") else None
                self._identity = _identity(self._told.fileno()) if self._told is not None else None
            self._watch()
        except BaseException:  # an interrupt: nobody calls `__exit__` then
            self._patches.restore()
            if self._told is not None:
                self._told.close()
            raise
        return self

    def _watch(self) -> None:
        def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            # Static, as what it stands for is: a class that has `open` as an attribute must not bind it.
            self._patches.wrap(owner, name, lambda original: staticmethod(make(original)))

        for module, name in _OPENS:
            if hasattr(sys.modules.get(module), name):
                wrap(sys.modules[module], name, self._opening)
        wrap(os, "open", self._os_opening)
        for name in ("remove", "unlink", "truncate"):
            wrap(os, name, functools.partial(self._by_path, (0,)))
        for name in ("rename", "replace"):
            wrap(os, name, functools.partial(self._by_path, (0, 1)))
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10's pathlib keeps functions of its own
        if accessor is not None:
            wrap(accessor, "open", self._opening)
            wrap(accessor, "unlink", functools.partial(self._by_path, (0,)))
            for name in ("rename", "replace"):
                wrap(accessor, name, functools.partial(self._by_path, (0, 1)))
        wrap(shutil, "rmtree", self._removing_tree)
        for module, name, at in _BY_PATH:
            if hasattr(sys.modules.get(module), name):
                wrap(sys.modules[module], name, functools.partial(self._by_path, (at,)))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._patches.restore()
        self._hear()
        there = {path: Path(path).exists() for path in self._seen}
        self.paths = tuple(self._shown(path) for path, now in there.items() if now and not Path(path).is_dir())
        self.deleted = tuple(self._shown(path) for path, before in self._seen.items() if before and not there[path])

    @property
    def told(self) -> tuple[str, ...]:
        """Both, as a recording keeps them: a deleted file says so behind its path."""
        return (*self.paths, *(f"{path} (deleted)" for path in self.deleted))

    @property
    def notes(self) -> list[str]:
        """What the patches could not put back; a built-in that the cell replaced is a snapshot's to put back."""
        return [note for note in self._patches.notes if not note.startswith("builtins.")]

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def open(file: Any, mode: Any = "r", *args: Any, **named: Any) -> Any:
            writes = isinstance(mode, str) and not _WRITES.isdisjoint(mode)
            there = _there(file) if writes else None
            opened = original(file, mode, *args, **named)
            self._note(there)
            return opened

        return open

    def _os_opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def open(path: Any, flags: Any, *args: Any, **named: Any) -> Any:
            writes = isinstance(flags, int) and flags & _WRITE_FLAGS and named.get("dir_fd") is None
            there = _there(path) if writes else None
            opened = original(path, flags, *args, **named)
            self._note(there)
            return opened

        return open

    def _by_path(self, at: tuple[int, ...], original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **named: Any) -> Any:
            here = named.get("dir_fd") is None
            there = [_there(args[number]) for number in at if here and number < len(args)]
            result = original(*args, **named)
            for one in there:
                self._note(one)
            return result

        return call

    def _removing_tree(self, original: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def rmtree(path: Any, *args: Any, **named: Any) -> Any:
            there = _there(path)
            result = original(path, *args, **named)
            self._note(there)
            return result

        rmtree.avoids_symlink_attacks = getattr(original, "avoids_symlink_attacks", False)  # type: ignore[attr-defined]
        return rmtree

    def _note(self, found: tuple[str, bool] | None) -> None:
        """Keeps a path at its first mention, and whether something was there before."""
        if found is not None and found[0] not in self._seen and not self._is_left_out(found[0]):
            self._seen[found[0]] = found[1]
            if os.getpid() != self._process and self._told is not None:
                with contextlib.suppress(OSError, ValueError):  # full, or closed: the code's own writing goes on
                    place = self._told.fileno()
                    if _identity(place) == self._identity:  # else the process has closed it, and its own file is there
                        os.write(place, b"%d%b\0" % (found[1], os.fsencode(found[0])))

    def _hear(self) -> None:
        """Adds what forked processes have told until now."""
        if self._told is None:
            return
        with contextlib.suppress(OSError), self._told as told:
            place = told.fileno()  # its position is shared with processes that may still write: it is left alone
            for line in os.pread(place, os.fstat(place).st_size, 0).split(b"\0"):
                if line:
                    self._seen.setdefault(os.fsdecode(line[1:]), line[:1] == b"1")

    def _is_left_out(self, path: str) -> bool:
        hidden = any(part.startswith(_CACHES) for part in Path(path).parts)
        return path.startswith(_ELSEWHERE) or hidden or (path.startswith(self._temporary) and "pymp-" in path)

    def _shown(self, path: str) -> str:
        inside = self._folder is not None and Path(path).is_relative_to(self._folder)
        return str(Path(path).relative_to(self._folder)) if inside and self._folder is not None else path


def _identity(place: int) -> tuple[int, int]:
    """Of an open file: its device's number and its own."""
    found = os.fstat(place)
    return found.st_dev, found.st_ino


def _there(file: Any) -> tuple[str, bool] | None:
    """Absolute path and whether something is there; None for a descriptor, a buffer, or what is no path at all."""
    try:
        path = os.path.abspath(os.fsdecode(file))  # noqa: PTH100 (an absolute path without following links)
        return path, os.path.lexists(path)
    except (TypeError, ValueError, OSError):
        return None


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # a machine with nowhere to write to
        return os.sep


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None
