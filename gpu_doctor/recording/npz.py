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
"""Maximum number of arrays: a run has about forty columns of steps, and two for each of some thirty metrics of each
GPU."""
MOST_BYTES: Final = 1 << 29
"""Maximum unpacked size in bytes: a step table has at most 2^17 rows (40 MB), a series 2^14 readings."""
MOST_HEADER_BYTES: Final = 1 << 24
"""Maximum size of the JSON header in bytes; as Python objects it takes some twenty times as much."""
_BROKEN: Final = (
    *(OSError, EOFError, LookupError, ValueError, TypeError, AttributeError),
    # an infinite number; a header that claims 70 TiB; nested brackets without end, or an encrypted entry
    *(ArithmeticError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),  # numpy tokenizes an array's header that is not Python
)
"""Errors that zipfile, numpy, json and our own types may raise on a damaged file."""


class RecordingError(ValueError):
    """Raised for a file that is not a readable recording; the message says in one sentence what to do.

    Example:
        >>> import gpu_doctor
        >>> try:
        ...     gpu_doctor.load("nowhere.npz")
        ... except gpu_doctor.RecordingError as error:
        ...     print(error)
        There is no recording at nowhere.npz: give the path of a file written by recording.save().
    """


def write(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], header: Mapping[str, Any]) -> Path:
    """Writes arrays and a header of plain values as a `.npz`, never as pickle.

    Returns:
        The path written (with `.npz` added if it had no suffix).

    Raises:
        OSError: If the path is a directory or cannot be written; an existing file is then unchanged.
    """
    target = _target(path)
    text = json.dumps({**header, "schema": SCHEMA}, default=_plain)
    everything = {**arrays, "header": np.frombuffer(text.encode(), dtype=np.uint8)}
    packed = io.BytesIO()
    np.savez_compressed(packed, **everything)  # type: ignore[arg-type]  # its own options have other names
    _replaced(target, packed.getvalue())
    return target


def check_place(path: str | Path) -> None:
    """Checks before a long run that a file can be written to a path; leaves no file behind.

    Raises:
        OSError: If it cannot be written, with the reason in one sentence.
    """
    target = _target(path).resolve()
    if not target.parent.is_dir():
        raise NotADirectoryError(f"There is no folder {target.parent}: create it, or name another place.")
    try:
        if target.is_file() or not target.exists():  # opening a device or a pipe would already use it
            part = _part(target)
            part.open("wb").close()
            part.unlink()
    except OSError as error:
        raise OSError(f"{target} cannot be written ({error.strerror}): name another place.") from None


def _target(path: str | Path) -> Path:
    """Returns the path of the file, with `.npz` added if it has no suffix.

    Raises:
        IsADirectoryError: If it is a directory.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: name a file in it, such as {target / 'run.npz'}")
    return target if target.suffix else target.with_suffix(".npz")


def _part(target: Path) -> Path:
    """Returns the path of the temporary file that is written first and then replaces the target."""
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _plain(value: Any) -> Any:
    """Converts a number of numpy's to one of Python's, for the JSON header."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"A recording holds plain values only, not a {type(value).__name__}.")


def _replaced(target: Path, packed: bytes) -> None:
    """Writes a temporary file next to the target, then replaces the target: an interrupted run leaves no half file."""
    target = target.resolve()  # a link stays a link
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
        target.write_bytes(packed)
        return
    part = _part(target)
    try:
        part.write_bytes(packed)
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(part):  # the message names the caller's file
            error.filename = str(target)
        raise


def read(path: str | Path, unpacked: Callable[[Mapping[str, npt.NDArray[Any]], dict[str, Any]], T]) -> T:
    """Reads a file that `write` wrote.

    Args:
        path: Path of the file.
        unpacked: Returns the result from the arrays and the header.

    Raises:
        RecordingError: If the file is missing, truncated, not a recording, or from a newer schema.
        TypeError: If `path` is not a path.
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
            f"{where} is not a complete gpu_doctor recording ({type(error).__name__}): name another file, or "
            "save or copy this one again."
        ) from error


def _check_sizes(where: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Checks that a file does not claim to unpack to more than a run records; unpacks nothing.

    Raises:
        RecordingError: If it claims more.
    """
    header = sum(entry.file_size for entry in entries if entry.filename.removesuffix(".npy") == "header")
    whole = sum(entry.file_size for entry in entries)
    if len(entries) > MOST_ARRAYS or header > MOST_HEADER_BYTES or whole > MOST_BYTES:
        raise RecordingError(
            f"{where} would unpack to more than any recording of gpu_doctor: open only what recording.save() wrote."
        )


def _check_claim(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Checks that an entry is as long as the array that its header describes.

    numpy allocates the memory that the header claims before it reads, and zipfile checks the checksum only of an entry
    that is read to its end. zipfile unpacks no more of a stored or deflated entry than is read; with the other methods
    it unpacks whole blocks, whatever size the entry claims.

    Raises:
        ValueError: If the length is wrong, or the entry is not an array in version 1.0 of numpy's format, as all of a
            recording's are.
    """
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename} is packed by a method that numpy does not use")
    with archive.open(entry) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{entry.filename} has another version of numpy's format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if file.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
            raise ValueError(f"{entry.filename} is not as long as it claims")
