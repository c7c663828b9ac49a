"""The file of a recording: one `.npz` of plain arrays with a JSON header, never pickle."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

T = TypeVar("T")

SCHEMA: Final = 1
"""Number of the file format; a file with a higher one was written by a newer gpu_doctor and is refused."""
MOST_ARRAYS: Final = 1 << 13
"""A run has about forty columns of steps, and two for each of some thirty metrics of each GPU."""
MOST_BYTES: Final = 1 << 29
"""No recording is larger when it is unpacked: a step table has 2^17 rows at most (40 MB), a series 2^14 readings."""
MOST_HEADER_BYTES: Final = 1 << 24
"""Of JSON, which takes some twenty times its bytes as Python's objects."""
_BROKEN: Final = (
    *(OSError, EOFError, LookupError, ValueError, TypeError, AttributeError),
    *(ArithmeticError, MemoryError, RuntimeError),  # an endless number, a claim of 70 TiB; no end of brackets, a cipher
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),  # numpy reads a header that is no Python token by token
)
"""What reading a damaged file may raise, in zipfile, numpy, json and our own types."""


class RecordingError(ValueError):
    """A file is not a readable recording; the message says in one sentence what to do.

    Example:
        >>> import gpu_doctor
        >>> try:
        ...     gpu_doctor.load("nowhere.npz")
        ... except gpu_doctor.RecordingError as error:
        ...     print(error)
        There is no recording at nowhere.npz: give the path of a file written by recording.save().
    """


def write(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], header: Mapping[str, Any]) -> Path:
    """Writes arrays and a header of plain values as a `.npz`; never pickle.

    Returns:
        The path written (with `.npz` added if it had no suffix).

    Raises:
        OSError: if it is a directory or cannot be written; what lay there before is then still there.
    """
    target = _target(path)
    text = json.dumps({**header, "schema": SCHEMA}, default=_plain)
    everything = {**arrays, "header": np.frombuffer(text.encode(), dtype=np.uint8)}
    packed = io.BytesIO()
    np.savez_compressed(packed, **everything)  # type: ignore[arg-type]  # its own options have other names
    _replaced(target, packed.getvalue())
    return target


def check_place(path: str | Path) -> None:
    """Returns if a file could be written there now, and leaves nothing behind: asked before a long run.

    Raises:
        OSError: with one sentence that says why not.
    """
    target = _target(path).resolve()
    if not target.parent.is_dir():
        raise NotADirectoryError(f"There is no folder {target.parent}: create it, or name another place.")
    try:
        if target.is_file() or not target.exists():  # a device or a pipe is used by being opened
            beside = _beside(target)
            beside.open("wb").close()
            beside.unlink()
    except OSError as error:
        raise OSError(f"{target} cannot be written ({error.strerror}): name another place.") from None


def _target(path: str | Path) -> Path:
    """The file that is meant.

    Raises:
        IsADirectoryError: if it is a directory.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: name a file in it, such as {target / 'run.npz'}")
    return target if target.suffix else target.with_suffix(".npz")


def _beside(target: Path) -> Path:
    """Where it is written before it takes its place."""
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _plain(one: Any) -> Any:
    """A number of numpy's, as code has it from an array, as Python's own."""
    if isinstance(one, np.generic):
        return one.item()
    raise TypeError(f"A recording holds plain values only, not a {type(one).__name__}.")


def _replaced(target: Path, packed: bytes) -> None:
    """Writes beside the target and puts it in its place when it is whole: a run that is cut off leaves no half file."""
    target = target.resolve()  # a link stays a link
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
        target.write_bytes(packed)
        return
    beside = _beside(target)
    try:
        beside.write_bytes(packed)
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(beside):  # name the file that was asked for
            error.filename = str(target)
        raise


def read(path: str | Path, unpacked: Callable[[Mapping[str, npt.NDArray[Any]], dict[str, Any]], T]) -> T:
    """Reads what `write` wrote.

    Args:
        path: of the file.
        unpacked: makes the result from arrays and header.

    Raises:
        RecordingError: if the file is missing, truncated, not a recording, or from a newer schema.
        TypeError: if it is no path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"load() takes the path of a file that recording.save() wrote, not {path!r:.60}.")
    where = Path(path)
    if not where.is_file():
        raise RecordingError(f"There is no recording at {where}: give the path of a file written by recording.save().")
    try:
        with where.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                _check_sizes(where, archive.infolist())
                for entry in archive.infolist():
                    _check_claim(archive, entry)
            with NpzFile(file, allow_pickle=False) as saved:  # as np.load opens a zip
                arrays = {name: saved[name] for name in saved.files}
        header = json.loads(arrays.pop("header").tobytes().decode())
        if int(header["schema"]) > SCHEMA:
            raise RecordingError(
                f"{where} was written by a newer gpu_doctor (schema {header['schema']}, this one reads up to "
                f"{SCHEMA}): upgrade jupyter-gpu-doctor to open it."
            )
        return unpacked(arrays, header)
    except RecordingError:
        raise
    except _BROKEN as error:
        raise RecordingError(
            f"{where} is not a complete gpu_doctor recording ({type(error).__name__}): save or copy it again."
        ) from error


def _check_sizes(where: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Returns if a file says that it unpacks to no more than a run leaves behind; nothing is unpacked for that.

    Raises:
        RecordingError: if it does not.
    """
    header = sum(one.file_size for one in entries if one.filename.removesuffix(".npy") == "header")
    if len(entries) > MOST_ARRAYS or header > MOST_HEADER_BYTES or sum(one.file_size for one in entries) > MOST_BYTES:
        raise RecordingError(
            f"{where} would unpack to more than any recording of gpu_doctor: open only what recording.save() wrote."
        )


def _check_claim(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Returns if an entry is as long as the array that its header describes.

    numpy takes the memory that the header asks for before it reads, and zipfile compares the checksum only of an entry
    that is read to its end. zipfile unpacks no more of an entry than is read of it where it is stored or deflated; by
    the other methods it unpacks whole blocks, whatever size the entry claims.

    Raises:
        ValueError: if it is not, or is no array of the first version of numpy's format, which a recording's all are.
    """
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename} is packed by a method that numpy does not use")
    with archive.open(entry) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{entry.filename} has another version of numpy's format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if file.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
            raise ValueError(f"{entry.filename} is not as long as it claims")
