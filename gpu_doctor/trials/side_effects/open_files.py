"""Restores files that were open for reading before a trial, and finds those that make it refuse.

A file's position is put back, and a file that the cell closes is opened again as the same object. A buffer in memory
gets its content back. Anything else that is open would let a side write to the user's file.
"""

from __future__ import annotations

import gc
import io
import logging
import mmap
import os
import stat
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np

from gpu_doctor.trials.side_effects.file_functions import path_of

_IN_MEMORY: Final = (io.BytesIO, io.StringIO)
_FILES: Final = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
DEPTH: Final = 4
"""Most references from an object to its file: a DictWriter has its dict, its writer, `write` and the file."""
MOST: Final = 200
"""Most objects that are searched behind one; each takes a few microseconds."""
_LOGGING: Final = (logging.Logger, logging.Handler)
"""Logging is muted in a side."""
_NOT_ENTERED: Final = (
    *(type, types.ModuleType, types.FunctionType, types.FrameType, types.CodeType, str, bytes, int),
    *_LOGGING,
)
_CONTAINERS: Final = (list, dict, tuple, set, frozenset)
_ARCHIVES: Final[dict[tuple[str, str], Callable[[Any], bool]]] = {
    ("zipfile", "ZipFile"): lambda file: file.fp is not None and file.mode != "r",
    ("tarfile", "TarFile"): lambda file: not file.closed and file.mode != "r",
    ("matplotlib.backends.backend_pdf", "PdfPages"): lambda file: vars(file).get("_file") is not None,
}
"""Module and name of an archive class -> function that says if an instance is open for writing."""


def is_kept(value: Any) -> bool:
    """True if a trial can restore an open object of an earlier cell; asking changes nothing."""
    try:
        if isinstance(value, _IN_MEMORY):
            return True
        if isinstance(value, mmap.mmap):
            with memoryview(value) as view:
                return view.readonly
        if isinstance(value, _FILES):
            if not value.closed:
                value.tell()  # raises while a text file is iterated
            return value.closed or (value.seekable() and not value.writable() and _is_on_disk(value))
    except ValueError:  # a map that is closed
        return isinstance(value, mmap.mmap)
    except Exception:  # the object does not answer
        return False
    return False


def _is_on_disk(file: Any) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def could_be_written(value: Any) -> bool:
    """True if an object that a snapshot does not enter has a file or archive open for writing."""
    try:
        if any(
            _ARCHIVES[part.__module__, part.__qualname__](value)
            for part in type(value).__mro__
            if (part.__module__, part.__qualname__) in _ARCHIVES
        ):
            return True
    except Exception:
        return False
    level, seen = [] if issubclass(type(value), _LOGGING) else [value], {id(value)}
    for _ in range(DEPTH):
        level = [referent for referent in gc.get_referents(*level) if not issubclass(type(referent), _NOT_ENTERED)]
        level = list({id(referent): referent for referent in level if id(referent) not in seen}.values())
        seen.update(map(id, level))
        if any(map(_is_written, level)):
            return True
        level = [referent for referent in level if _is_entered(referent)]
        if not level or len(seen) > MOST:
            return False
    return False


def _is_entered(value: Any) -> bool:
    cls = type(value)  # not `isinstance`, which asks a proxy for what it stands for
    return not issubclass(cls, io.IOBase) and not (cls in _CONTAINERS and len(value) > MOST)


def _is_written(value: Any) -> bool:
    if not issubclass(type(value), _FILES) or any(
        value is other for other in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    ):
        return False
    try:
        return not value.closed and value.writable() and _is_on_disk(value)
    except Exception:
        return False


def is_written_map(array: Any) -> bool:
    """True if writing to a numpy array changes the file that it is mapped from."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.mode in ("r+", "w+"):
            return True
        array = array.base
    return False


def undo_of(value: Any) -> tuple[int, Callable[[], None]]:
    """Returns the bytes stored for an object that `is_kept` accepts, and the function that restores it."""
    if isinstance(value, _IN_MEMORY):
        if value.closed:
            return 0, _nothing
        state: Any = value.__getstate__()
        put: Any = value
        return len(state[0]), lambda: put.__setstate__(state)
    if isinstance(value, mmap.mmap):
        with suppress(ValueError):  # it is closed
            at = value.tell()
            return 0, lambda: value.seek(at)
        return 0, _nothing
    return 0, _nothing if value.closed else _undo_of_file(value)


def _undo_of_file(file: Any) -> Callable[[], None]:
    at, again = file.tell(), _opener(file, path_of(file.fileno()))

    def undo() -> None:
        if file.closed:
            again()
        file.seek(0, os.SEEK_END)  # a place in its buffer would be read from there, as it was in the trial
        file.seek(at)

    return undo


def _opener(file: Any, path: str | None) -> Callable[[], None]:
    """Returns a function that reopens a closed file in the same objects: text, buffer and raw file."""
    text = file if isinstance(file, io.TextIOWrapper) else None
    buffer = text.buffer if text is not None else file
    raw: Any = getattr(buffer, "raw", buffer)
    how = (text.encoding, text.errors, None, text.line_buffering, text.write_through) if text is not None else ()
    mode = raw.mode

    def again() -> None:
        """Opens the same objects again, on the same path and in the same mode."""
        if path is None:
            raise OSError("it was closed and has no name on the disk")
        vars(raw).pop("__IOBase_closed", None)  # where its flush looks
        raw.__init__(path, mode)
        if buffer is not raw:
            buffer.__init__(raw)
        if text is not None:
            text.__init__(buffer, *how)  # type: ignore[misc]

    return again


def _nothing() -> None:
    """Undo for objects that need none."""
