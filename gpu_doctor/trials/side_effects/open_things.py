"""Files, memory maps and databases that were open before a trial: what of them can be kept, and how it is put back.

Of a file its bytes (see `kept_files.py`), what is in its buffers, and where it stands; one that the cell closes is
opened again as the same object. Of a map its bytes, of a database in memory its pages.
"""

from __future__ import annotations

import io
import logging
import mmap
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpu_doctor.trials.side_effects.file_states import APPEND, CONTENT, MARKS, path_of

_FILES: Final = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_IN_MEMORY: Final = (io.BytesIO, io.StringIO)
TRANSACTION: Final = "has a transaction open"
"""The one reason that goes away while the thing stays open."""


def why_not(value: Any) -> str:
    """Why an open thing cannot be kept, a clause on it; empty if it can. It is not changed.

    Args:
        value: a file, a map, a database, or whatever else has something open.
    """
    try:
        if isinstance(value, _IN_MEMORY):
            return ""
        if isinstance(value, _FILES):
            return "" if value.closed else _why_not_file(value)
        if isinstance(value, mmap.mmap):
            return ""
        if isinstance(value, sqlite3.Connection):
            return _why_not_database(value)
    except Exception as error:
        return f"cannot be asked where it stands ({error})"
    return "has a state that nobody can copy"


def _why_not_file(file: Any) -> str:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not file.seekable():
        return "is no file on a disk"
    if file.writable() and path_of(file.fileno()) is None:
        return "has no name on the disk"
    if not file.writable():
        file.tell()  # text that is being gone through does not tell
    return ""


def _why_not_database(database: sqlite3.Connection) -> str:
    try:
        asked = database.cursor()
        asked.row_factory = None
        mode = next(asked.execute("pragma journal_mode"))[0]
    except sqlite3.ProgrammingError as error:
        return "" if "closed" in str(error) else "belongs to another thread"
    if database.in_transaction:
        return TRANSACTION
    return "is in WAL mode" if mode == "wal" else ""


class OpenThing:
    """One of them, as it was: `settle` before files are put back, `resume` after it."""

    def __init__(self, value: Any, name: str) -> None:
        """Keeps where it stands; what it has buffered is written out.

        Args:
            value: of which `why_not` says nothing.
            name: for people.
        """
        self.name = name
        self.paths: tuple[str, ...] = ()
        """Files that may be written through it."""
        self.how = CONTENT
        """How these are touched."""
        self.bytes = 0
        """What is kept of it in memory."""
        self.settle: Callable[[], None] = _nothing
        self.resume: Callable[[], None] = _nothing
        if isinstance(value, _IN_MEMORY):
            self._in_memory(value)
        elif isinstance(value, mmap.mmap):
            self._map(value)
        elif isinstance(value, sqlite3.Connection):
            self._database(value)
        elif not value.closed:
            self._file(value)

    def _in_memory(self, value: Any) -> None:
        if not value.closed:
            state = value.__getstate__()
            self.bytes = len(state[0])
            self.resume = lambda: value.__setstate__(state)

    def _map(self, value: mmap.mmap) -> None:
        with suppress(ValueError), memoryview(value) as view:  # it is closed
            saved, at, writable = bytes(view), value.tell(), not view.readonly
            self.bytes = len(saved)

            def resume() -> None:
                if writable and value[:] != saved:
                    value[:] = saved
                value.seek(at)

            self.resume = resume

    def _database(self, value: sqlite3.Connection) -> None:
        try:
            asked = value.cursor()
            asked.row_factory, asked_text = None, value.text_factory
            value.text_factory = str
            files = [file for _, name, file in asked.execute("pragma database_list") if name != "temp"]
            value.text_factory = asked_text
        except sqlite3.ProgrammingError:  # it is closed
            return
        self.paths = tuple(file + behind for file in files if file for behind in ("", "-journal"))
        saved = sqlite3.connect(":memory:", check_same_thread=False) if files[:1] == [""] else None
        if saved is not None:
            value.backup(saved)

        def settle() -> None:
            if value.in_transaction:
                value.rollback()

        def resume() -> None:
            if saved is not None:
                saved.backup(value)

        self.settle, self.resume = settle, resume

    def _file(self, file: Any) -> None:
        place = path_of(file.fileno())
        if file.writable():
            file.flush()
            self.paths = (place,) if place is not None else ()
        at, again = file.tell(), _opener(file, place)

        def settle() -> None:
            if not file.closed and file.writable():
                file.flush()

        def resume() -> None:
            if file.closed:
                again()
            file.seek(0, os.SEEK_END)  # a place in its buffer would be read from there, as it was in the trial
            file.seek(at)

        self.settle, self.resume = settle, resume


def _nothing() -> None:
    """For what needs none."""


def _opener(file: Any, path: str | None) -> Callable[[], None]:
    """Opens a file that was closed anew, as the same objects: its text, its buffer, and what is below."""
    text = file if isinstance(file, io.TextIOWrapper) else None
    buffer = text.buffer if text is not None else file
    raw: Any = getattr(buffer, "raw", buffer)
    how = (text.encoding, text.errors, None, text.line_buffering, text.write_through) if text is not None else ()
    mode = raw.mode

    def again() -> None:
        if path is None:
            raise OSError("it was closed and has no name on the disk")
        raw.__init__(path, mode, opener=lambda name, flags: os.open(name, flags & ~(os.O_TRUNC | os.O_EXCL)))
        if buffer is not raw:
            buffer.__init__(raw)
        if text is not None:
            text.__init__(buffer, *how)  # type: ignore[misc]

    return again


def log_files() -> Iterator[tuple[logging.FileHandler, Any]]:
    """Handlers of logging that write to a file, each with what it has open: None before its first line."""
    for one in list(getattr(logging, "_handlerList", ())):
        handler = one()
        if isinstance(handler, logging.FileHandler) and Path(handler.baseFilename) != Path(os.devnull):
            yield handler, handler.stream


class LogFile(OpenThing):
    """A handler's file: it may be opened and turned over in the trial by functions that nobody watches."""

    def __init__(self, handler: logging.FileHandler) -> None:
        """Args: handler: of logging."""
        stream: Any = handler.stream
        super().__init__(io.BytesIO() if stream is None else stream, handler.baseFilename)
        self.paths, self.how = (handler.baseFilename,), APPEND
        resume = self.resume

        def back() -> None:
            if handler.stream is not stream:
                with suppress(Exception):
                    turned: Any = handler.stream
                    turned.close()
                handler.stream = stream
            if stream is not None:
                resume()

        self.resume = back


class MappedArray(OpenThing):
    """A numpy array that is mapped from a file: its bytes are put back as an array's, the file's time after them."""

    def __init__(self, array: Any) -> None:
        """Args: array: a numpy.memmap."""
        super().__init__(io.BytesIO(), str(array.filename))
        self.paths, self.how = (str(array.filename),), MARKS
