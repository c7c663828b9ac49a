"""Which functions touch a file, and how: of Python's `os`, and of libraries that open files past Python."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gpu_doctor.trials.side_effects.file_states import APPEND, CONTENT, MARKS, NAME, NEW

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment, unused-ignore]

Touched: TypeAlias = tuple[Any, str, Any]
"""A path (or descriptor), how it is touched, and the descriptor of the folder it is relative to, or None."""
Reads: TypeAlias = Callable[..., Iterable[Touched]]
"""What a call touches, told by its arguments; no path where it only reads."""

_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Argument:
    """A path among the arguments of a function."""

    at: int
    name: str
    how: str
    folder: str = "dir_fd"
    """The argument that has the descriptor of the folder that it is relative to."""

    def of(self, args: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Touched]:
        """The path as given; none where it is missing, which is the caller's error."""
        if self.at < len(args) or self.name in named:
            yield args[self.at] if self.at < len(args) else named[self.name], self.how, named.get(self.folder)


def _by(*arguments: Argument) -> Reads:
    return lambda *args, **named: [one for argument in arguments for one in argument.of(args, named)]


def opened(file: Any = None, mode: Any = "r", *args: Any, **named: Any) -> Iterator[Touched]:
    """Of `open`: the file, where the mode writes."""
    if isinstance(mode, str) and not {"w", "a", "x", "+"}.isdisjoint(mode):
        yield file, APPEND if "a" in mode else CONTENT, None


def _os_opened(path: Any = None, flags: Any = 0, *args: Any, **named: Any) -> Iterator[Touched]:
    if isinstance(flags, int) and flags & _WRITE_FLAGS:
        grows = flags & os.O_APPEND and not flags & os.O_TRUNC
        yield path, APPEND if grows else CONTENT, named.get("dir_fd")


def _os_written(fd: Any = None, *args: Any, **named: Any) -> Iterator[Touched]:
    """Of `os.write`: a descriptor that appends; one that does not has a place of its own, which nobody puts back."""
    if fcntl is not None and isinstance(fd, int) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND:
        yield fd, APPEND, None


def _connected(database: Any = "", *args: Any, **named: Any) -> Iterator[Touched]:
    """Of `sqlite3.connect`: the database and the files that SQLite makes beside it; none where it only reads."""
    uri = named.get("uri", args[6] if len(args) > 6 else False)
    with contextlib.suppress(TypeError, ValueError):
        path = os.fsdecode(database)
        if uri and path.startswith("file:"):
            path, _, asked = path.removeprefix("file:").partition("?")
            if not {"mode=ro", "mode=memory", "immutable=1"}.isdisjoint(asked.split("&")):
                return
            path = re.sub("^//[^/]*", "", path.partition("#")[0])
            path = re.sub("%([0-9a-fA-F]{2})", lambda two: chr(int(two[1], 16)), path)
        if path and path != ":memory:":
            yield from ((path + behind, CONTENT, None) for behind in ("", "-journal", "-wal", "-shm"))


def _hdf5_opened(path: Any = None, flags: Any = 0, *args: Any, **named: Any) -> Iterator[Touched]:
    """Of `h5py.h5f.open`: the file, where the flags are not those for reading."""
    if flags not in (0, None):
        yield path, CONTENT, None


def _mapped(path: Any = None, shared: Any = None, *args: Any, **named: Any) -> Iterator[Touched]:
    if named.get("shared", shared):
        yield named.get("filename", path), CONTENT, None


def _dbm_opened(path: Any = None, flag: Any = "r", *args: Any, **named: Any) -> Iterator[Touched]:
    if isinstance(flag, str) and not flag.startswith("r"):
        with contextlib.suppress(TypeError):
            yield from ((os.fsdecode(path) + behind, CONTENT, None) for behind in ("", ".db", ".dir", ".pag"))


_TWO: Final = (Argument(0, "src", NAME, "src_dir_fd"), Argument(1, "dst", NAME, "dst_dir_fd"))
_MARKED: Final = _by(Argument(0, "path", MARKS))
_MADE: Final = _by(Argument(0, "path", NEW))
_GONE: Final = _by(Argument(0, "path", NAME))
OS: Final[dict[str, Reads]] = {
    "open": _os_opened,
    **dict.fromkeys(("remove", "unlink", "rmdir"), _GONE),
    **dict.fromkeys(("rename", "replace"), _by(*_TWO)),
    **dict.fromkeys(("mkdir", "mkfifo", "mknod"), _MADE),
    "link": _by(Argument(0, "src", MARKS, "src_dir_fd"), Argument(1, "dst", NEW, "dst_dir_fd")),
    "symlink": _by(Argument(1, "dst", NEW)),
    **dict.fromkeys(("write", "writev"), _os_written),
    "truncate": _by(Argument(0, "path", CONTENT)),
    "ftruncate": _by(Argument(0, "fd", CONTENT)),
    **dict.fromkeys(("chmod", "lchmod", "chown", "lchown", "utime"), _MARKED),
    **dict.fromkeys(("setxattr", "removexattr"), _MARKED),
}
"""Functions of `os`; pathlib, shutil and tempfile stand on them."""
_FIRST: Final = _by(Argument(0, "", CONTENT))
_SECOND: Final = _by(Argument(1, "filename", CONTENT))
LIBRARIES: Final[tuple[tuple[str, str, Reads], ...]] = (
    ("torch._C", "PyTorchFileWriter", _FIRST),
    ("torch.jit", "save", _by(Argument(1, "f", CONTENT))),
    ("torch.jit._script", "RecursiveScriptModule.save", _by(Argument(1, "f", CONTENT))),
    ("torch", "from_file", _mapped),
    ("torch", "UntypedStorage.from_file", _mapped),
    ("torch.autograd.profiler", "profile.export_chrome_trace", _by(Argument(1, "path", CONTENT))),
    ("safetensors", "serialize_file", _SECOND),
    ("sqlite3", "connect", _connected),
    ("sqlite3", "Connection", _connected),
    ("_gdbm", "open", _dbm_opened),
    ("_dbm", "open", _dbm_opened),
    ("cv2", "imwrite", _by(Argument(0, "filename", CONTENT))),
    ("h5py.h5f", "create", _by(Argument(0, "name", CONTENT))),
    ("h5py.h5f", "open", _hdf5_opened),
    ("pyarrow.parquet.core", "ParquetWriter.__init__", _by(Argument(1, "where", CONTENT))),
    ("pyarrow.feather", "write_feather", _by(Argument(1, "dest", CONTENT))),
    ("pyarrow.csv", "write_csv", _by(Argument(1, "output_file", CONTENT))),
)
"""Functions that open a file past Python: module, name (of a class, with a method), and what they touch."""
OPENS: Final = (("builtins", "open"), ("io", "open"), ("io", "FileIO"), ("IPython.core.interactiveshell", "io_open"))
"""The last is what the `open` of a notebook's cells calls: IPython gives them one of its own."""
CLASSES: Final = frozenset({("io", "FileIO"), ("sqlite3", "Connection")})
"""Those of all these that are classes by which instances are told."""


def library_functions() -> Iterator[tuple[Any, str, Reads]]:
    """Those of `LIBRARIES` that are loaded: owner, name, what they touch."""
    for module, dotted, reads in LIBRARIES:
        owner: Any = sys.modules.get(module)
        *classes, name = dotted.split(".")
        for one in classes:
            owner = getattr(owner, one, None)
        if owner is not None and hasattr(owner, name):
            yield owner, name, reads
