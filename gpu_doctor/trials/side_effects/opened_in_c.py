"""Lists library functions that open files in C: a trial redirects the path of some and refuses the others.

Nothing is imported for it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gpu_doctor import formatting

READ: Final = "read"
"""The file is only read."""
CHANGE: Final = "change"
"""The file may be changed in place."""
REPLACE: Final = "replace"
"""The file is created, or overwritten as a whole."""
MAKE: Final = "make"
"""The file is created and must not exist."""
Use: TypeAlias = str
Chooser: TypeAlias = Callable[[dict[str, Any], tuple[Any, ...]], Use]
Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Place: TypeAlias = Callable[[Any, Use], Any]
"""Path as given, and its use -> path to use instead."""


@dataclass(frozen=True)
class Opener:
    """A function with a path among its arguments."""

    module: str
    name: str
    """Function, class, or `Class.method`."""
    at: int
    argument: str
    use: Use | Chooser
    beside: tuple[str, ...] = ()
    """Suffixes of further files that belong to the file."""

    def redirected(self, args: tuple[Any, ...], named: dict[str, Any], place: Place) -> Call:
        """Returns the arguments with the path that `place` gives; unchanged if they have no path."""
        given = args[self.at] if self.at < len(args) else named.get(self.argument)
        if not isinstance(given, (str, bytes, os.PathLike)):
            return args, named
        use = self.use if isinstance(self.use, str) else self.use(named, args)
        there = _database(given, place) if self.module == "sqlite3" else place(given, use)
        for end in self.beside if use == CHANGE else ():
            place(os.fsdecode(given) + end, CHANGE)
        if self.at < len(args):
            return (*args[: self.at], there, *args[self.at + 1 :]), named
        return args, {**named, self.argument: there}


def _parts(uri: str) -> tuple[str, str]:
    path, _, query = uri.removeprefix("file:").partition("#")[0].partition("?")
    path = re.sub("%([0-9a-fA-F]{2})", lambda two: chr(int(two[1], 16)), re.sub("^//[^/]*", "", path))
    return path, query


def _database(given: Any, place: Place) -> Any:
    """Redirects an SQLite path or URI, with the database's side files; one in memory is left alone."""
    is_uri = isinstance(given, str) and given.startswith("file:")
    path, query = _parts(given) if is_uri else (os.fsdecode(given), "")
    if path in ("", ":memory:") or "mode=memory" in query:
        return given
    if not {"mode=ro", "immutable=1"}.isdisjoint(query.split("&")):
        there = place(path, READ)
    else:
        for end in ("-journal", "-wal"):
            place(path + end, CHANGE)
        there = place(path, CHANGE)
    if not is_uri:
        return there
    there = re.sub("[%?#]", lambda sign: f"%{ord(sign[0]):02X}", there)
    return f"file:{there}{f'?{query}' if query else ''}"


def _mapped_use(named: dict[str, Any], args: tuple[Any, ...]) -> Use:
    return CHANGE if named.get("shared", args[1] if len(args) > 1 else False) else READ


def _hdf5_use(named: dict[str, Any], args: tuple[Any, ...]) -> Use:
    return READ if named.get("flags", args[1] if len(args) > 1 else 1) == 0 else CHANGE


def _hdf5_made(named: dict[str, Any], args: tuple[Any, ...]) -> Use:
    flags = named.get("flags", args[1] if len(args) > 1 else 2)
    return MAKE if isinstance(flags, int) and flags & 4 else REPLACE


def _by_mode(named: dict[str, Any], args: tuple[Any, ...]) -> Use:
    return use_of(named.get("mode", args[1] if len(args) > 1 else "r"))


def without_attaching(database: Any, refuse: Callable[[str], None]) -> Any:
    """Makes an SQLite connection refuse to open further files by SQL, whose paths cannot be redirected."""
    import sqlite3

    def allows(action: int, name: str | None, *_: Any) -> int:
        if action != sqlite3.SQLITE_ATTACH or name in ("", None, ":memory:"):
            return sqlite3.SQLITE_OK
        with suppress(BaseException):  # SQLite would swallow it; the side is refused when it has ended
            refuse(f"Your cell opens {formatting.clean(name, 120)} by SQL, which a trial cannot redirect.")
        return sqlite3.SQLITE_DENY

    if isinstance(database, sqlite3.Connection):
        database.set_authorizer(allows)
    return database


def use_of(mode: Any) -> Use:
    """Returns how a file is used that is opened in this mode of Python's `open`."""
    if not isinstance(mode, str) or {"w", "a", "x", "+"}.isdisjoint(mode):
        return READ
    return MAKE if "x" in mode else REPLACE if "w" in mode else CHANGE


OPENERS: Final = (
    Opener("torch", "save", 1, "f", REPLACE),
    Opener("torch", "load", 0, "f", READ),
    Opener("torch._C", "PyTorchFileWriter", 0, "", REPLACE),
    Opener("torch", "from_file", 0, "filename", _mapped_use),
    Opener("torch", "UntypedStorage.from_file", 0, "filename", _mapped_use),
    Opener("torch.jit", "save", 1, "f", REPLACE),
    Opener("torch.jit", "load", 0, "f", READ),
    Opener("torch.jit._script", "RecursiveScriptModule.save", 1, "f", REPLACE),
    Opener("torch.autograd.profiler", "profile.export_chrome_trace", 1, "path", REPLACE),
    Opener("numpy.lib._datasource", "open", 0, "path", _by_mode),
    Opener("safetensors", "serialize_file", 1, "filename", REPLACE),
    Opener("safetensors", "safe_open", 0, "filename", READ),
    Opener("sqlite3", "connect", 0, "database", CHANGE),
    Opener("_gdbm", "open", 0, "filename", CHANGE),
    Opener("_dbm", "open", 0, "filename", CHANGE, (".db", ".dir", ".pag")),
    Opener("h5py.h5f", "open", 0, "name", _hdf5_use),
    Opener("h5py.h5f", "create", 0, "name", _hdf5_made),
    Opener("h5py.h5f", "is_hdf5", 0, "name", READ),
    Opener("pyarrow.parquet.core", "ParquetWriter.__init__", 1, "where", REPLACE),
    Opener("pyarrow.parquet.core", "ParquetFile.__init__", 1, "source", READ),
    Opener("pyarrow.parquet.core", "read_table", 0, "source", READ),
    Opener("pyarrow", "OSFile", 0, "path", _by_mode),
    Opener("pyarrow", "memory_map", 0, "path", _by_mode),
    Opener("pyarrow.csv", "write_csv", 1, "output_file", REPLACE),
    Opener("pyarrow.feather", "write_feather", 1, "dest", REPLACE),
    Opener("pyarrow.feather", "read_table", 0, "source", READ),
    Opener("transformers.tokenization_utils_base", "PreTrainedTokenizerBase.save_pretrained", 1, "", CHANGE),
)
"""Functions whose path is redirected."""
WRITERS: Final = (
    *("cv2.imwrite", "cv2.imwritemulti", "cv2.VideoWriter", "soundfile.write", "torchaudio.save", "faiss.write_index"),
    *(
        "torchvision.io.write_jpeg",
        "torchvision.io.write_png",
        "torchvision.io.write_file",
        "torchvision.io.write_video",
    ),
    *("SimpleITK.WriteImage", "pyarrow.dataset.write_dataset", "polars.DataFrame.write_csv"),
    *("polars.DataFrame.write_parquet", "polars.DataFrame.write_ipc", "xgboost.Booster.save_model"),
    *("lightgbm.Booster.save_model", "plyvel.DB"),
)
"""Functions that write files in C: a trial that calls one is refused."""
_BY_MODE: Final = (
    "rasterio.open",
    "netCDF4.Dataset",
    "soundfile.SoundFile",
    "tables.open_file",
    "tables.File",
    "av.open",
)
_BY_SWITCH: Final = {"lmdb.open": "readonly", "lmdb.Environment": "readonly", "duckdb.connect": "read_only"}
"""Functions that read or write by an argument: a trial is refused if they write."""


def writes(full: str, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """True if a call of one of `refused` writes to a file, or may."""
    if full in _BY_MODE:
        return _by_mode(named, args) != READ
    switch = _BY_SWITCH.get(full, "")
    in_memory = full == "duckdb.connect" and named.get("database", args[0] if args else ":memory:") == ":memory:"
    return not in_memory and not named.get(switch, False)


def found(dotted: str) -> tuple[Any, str] | None:
    """Returns a function's module or class, and its name there; None if the module is not loaded.

    Args:
        dotted: module, colon and name, such as `torch:UntypedStorage.from_file`.
    """
    module, _, path = dotted.partition(":")
    owner: Any = sys.modules.get(module)
    *classes, name = path.split(".")
    for cls in classes:
        owner = getattr(owner, cls, None)
    return (owner, name) if owner is not None and hasattr(owner, name) else None


def why_refused(names: Sequence[str]) -> str:
    """Returns the sentence that refuses a trial, or ends a side, whose cell calls these functions."""
    return (
        f"Your cell calls {', '.join(names)}, which opens files in C, where a trial cannot keep what it writes apart "
        "from yours: call it in another cell."
    )


def refused() -> Iterator[tuple[Any, str, str]]:
    """Yields owner, name and full name of each loaded function that may write files in C."""
    for full in (*WRITERS, *_BY_MODE, *_BY_SWITCH):
        for module in _modules_of(full):
            there = found(f"{module}:{full.removeprefix(module + '.')}")
            if there is not None:
                yield (*there, full)
                break


def modules() -> frozenset[str]:
    """Returns the names of all modules that have one of these functions."""
    names = (module for full in (*WRITERS, *_BY_MODE, *_BY_SWITCH) for module in _modules_of(full))
    return frozenset((*names, *(opener.module for opener in OPENERS)))


def _modules_of(full: str) -> list[str]:
    parts = full.split(".")
    return [".".join(parts[:at]) for at in range(len(parts) - 1, 0, -1)]
