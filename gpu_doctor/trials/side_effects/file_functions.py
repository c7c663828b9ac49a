"""Lists Python's own file functions, each with the replacement that a side calls."""

from __future__ import annotations

import builtins
import io
import os
import stat
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from gpu_doctor import formatting
from gpu_doctor.trials.side_effects.opened_in_c import CHANGE, MAKE, READ, REPLACE, Use, use_of
from gpu_doctor.trials.side_effects.overlay import Overlay

_ELSEWHERE: Final = ("/dev/", "/proc/", "/sys/")
"""Folders whose entries look like files and are none."""
_IN_MEMORY: Final = "/dev/shm/"
"""The exception: a folder in there with real files."""
_OUTLIVES: Final = ("gpu_doctor-", "pymp-", "joblib_memmapping_folder_", "matplotlib-", "torch-shm-")
"""Prefixes of temporary files that we or a library make once and use until the process ends."""
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_UNNAMED: Final = getattr(os, "O_TMPFILE", 0)
_os_open: Final = os.open


class Side(Protocol):
    """A side, as far as the functions here use it."""

    @property
    def files(self) -> Files:
        """The files to which paths are redirected."""

    def busy(self) -> AbstractContextManager[None]:
        """Marks our own work on files, which is not redirected."""

    def redirected(self, path: Any, use: Use) -> Any:
        """Returns the redirected path; the path itself if it is left alone."""

    def refuse(self, why: str) -> None:
        """Ends the side; `why` is one sentence."""


Make: TypeAlias = Callable[[Callable[..., Any], Side], Callable[..., Any]]


class Files:
    """Maps each path of a side to the path that is used instead."""

    def __init__(self, overlay: Overlay, left_alone: tuple[str, ...], temporary: str) -> None:
        """Args: overlay: holds the changes. left_alone: folders that are not redirected. temporary: for `tempfile`."""
        self.overlay, self.temporary, self._left_alone = overlay, temporary, left_alone
        self._scratch = (_IN_MEMORY, os.path.join(tempfile.gettempdir(), ""))  # noqa: PTH118

    def outlives(self, prefix: Any) -> bool:
        """True if temporary files with this prefix are used until the process ends."""
        return isinstance(prefix, str) and prefix.startswith(_OUTLIVES)

    def absolute(self, path: Any, folder: int | None = None) -> str | None:
        """Returns a path as the user knows it, links unresolved; None if it is left alone or no path.

        Args:
            path: path or file descriptor.
            folder: descriptor of the folder that a relative path starts from.
        """
        try:
            text = path_of(path) if isinstance(path, int) else os.fsdecode(path)
            if not text or "\0" in text:
                return None
            if not os.path.isabs(text):  # noqa: PTH117
                base = os.getcwd() if folder is None else path_of(folder)  # noqa: PTH109
                text = os.path.join(self.overlay.users(base or ""), text)  # noqa: PTH118
        except (TypeError, ValueError, OSError):
            return None
        text = self.overlay.users(os.path.abspath(text) if os.name == "nt" else text)  # noqa: PTH100
        return None if self._is_left_alone(text) else text

    def _is_left_alone(self, text: str) -> bool:
        in_memory = text.startswith(_IN_MEMORY)
        if (text.startswith(_ELSEWHERE) and not in_memory) or text.startswith(self._left_alone):
            return True
        parts = text.split(os.sep)  # noqa: PTH206
        return "__pycache__" in parts or (
            text.startswith(self._scratch) and any(part.startswith(_OUTLIVES) for part in parts)
        )

    def looked(self, path: Any, follows: bool = True, folder: int | None = None) -> str | None:
        """Returns the place of a file that is only read; None = the path as given."""
        if self.overlay.is_clean:
            return None
        text = self.absolute(path, folder)
        place = text and self.overlay.place(self.overlay.key(text, follows))
        return None if place == text else place

    def changed(
        self, path: Any, use: Use = CHANGE, follows: bool = True, folder: int | None = None, opens: bool = False
    ) -> str | None:
        """Returns the place to change or create a file, a copy of the user's; None = the path as given."""
        text = self.absolute(path, folder)
        if text is None:
            return None
        key = self.overlay.key(text, follows)
        place = self.overlay.place(key)
        if use != MAKE or not os.path.lexists(place):
            place = self.overlay.changed(key, use != REPLACE, opens)
        return None if place == text else place

    def opened(self, path: Any, use: Use) -> str | bytes | None:
        """Returns the place of a file to open; None = the path as given."""
        place = self.looked(path) if use == READ else self.changed(path, use, opens=True)
        return os.fsencode(place) if place is not None and isinstance(path, bytes) else place

    def open_before(self, place: Any) -> str | None:
        """Returns the path of the user's file behind a descriptor; None for the side's files and for no file."""
        if not isinstance(place, int) or place <= 2 or not stat.S_ISREG(os.fstat(place).st_mode):
            return None
        path = path_of(place)
        return None if path is None or self.overlay.users(path) != path or self._is_left_alone(path) else path


def path_of(place: int) -> str | None:
    """Returns the present path of a descriptor's file; None if the system does not say."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(place, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    path = str(Path(f"/proc/self/fd/{place}").readlink()) if Path("/proc/self/fd").is_dir() else ""
    return path if path.startswith(os.sep) and not path.endswith(" (deleted)") else None


def working_folder() -> Path | None:
    """Returns the folder that relative paths start from; None if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


@contextmanager
def _errors_of(*given: Any) -> Iterator[None]:
    """Makes an error that is raised inside name the paths as the cell wrote them."""
    try:
        yield
    except OSError as error:
        for name, path in zip(("filename", "filename2"), given, strict=False):
            if getattr(error, name) is not None:
                setattr(error, name, os.fspath(path) if isinstance(path, os.PathLike) else path)
        raise


# ---- opening ------------------------------------------------------------------------------------------------------


def _opening(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `open`; the file object has the name that the user knows."""

    def call(file: Any, mode: Any = "r", *args: Any, **named: Any) -> Any:
        place: Any = file if isinstance(file, int) else side.redirected(file, use_of(mode))
        if place is file:
            return original(file, mode, *args, **named)
        with _errors_of(file):
            if named.get("opener") is not None:
                return original(place, mode, *args, **named)
            named["opener"] = lambda name, flags: _os_open(place, flags, 0o666)
            return original(file, mode, *args, **named)

    return call


def _os_opening(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.open`: what it reads or writes is redirected to where the side has it."""

    def call(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        follows = not flags & getattr(os, "O_NOFOLLOW", 0)
        with side.busy():
            place: str | None
            if _UNNAMED and flags & _UNNAMED == _UNNAMED:
                place = side.files.temporary
            elif not flags & _WRITE_FLAGS:
                place = side.files.looked(path, follows, dir_fd)
            else:
                whole = REPLACE if flags & os.O_TRUNC else CHANGE
                use = MAKE if flags & os.O_EXCL and flags & os.O_CREAT else whole
                place = side.files.changed(path, use, follows, dir_fd, opens=True)
        if place is None:
            return original(path, flags, mode, dir_fd=dir_fd)
        with _errors_of(path):
            return original(place, flags, mode)

    return call


# ---- looking ------------------------------------------------------------------------------------------------------


def _looking(follows: bool = True) -> Make:
    """Replaces functions that read about a path; `follows`: symbolic links are followed unless the call says no."""

    def make(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **named: Any) -> Any:
            with side.busy():
                through = follows and named.get("follow_symlinks", True)
                number = isinstance(path, int)
                place = None if number else side.files.looked(path, through, named.get("dir_fd"))
            if place is None:
                return original(path, *args, **named)
            named.pop("dir_fd", None)
            with _errors_of(path):
                found = original(place, *args, **named)
            return os.fsencode(found) if isinstance(path, bytes) and isinstance(found, str) else found

        return call

    return make


def _getting_folder(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.getcwd`: returns the folder under the name that the user knows."""

    def call() -> Any:
        here = original()
        there = side.files.overlay.users(os.fsdecode(here))
        return os.fsencode(there) if isinstance(here, bytes) else there

    return call


def _names(side: Side, path: Any) -> list[str] | None:
    """Returns the names in a folder as the side sees it; None if the folder as given has the same."""
    overlay = side.files.overlay
    text = None if overlay.is_clean else side.files.absolute("." if path is None else path)
    if text is None:
        return None
    key = overlay.key(text)
    place = overlay.place(key)
    return None if place == text and not overlay.is_touched(key) else overlay.names(key)


def _listing(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.listdir`: returns the names as the side sees them."""

    def call(path: Any = None) -> Any:
        with side.busy(), _errors_of(path):
            names = _names(side, path)
        if names is None:
            return original(path)
        return list(map(os.fsencode, names)) if isinstance(path, bytes) else names

    return call


def _scanning(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.scandir`: iterates over the names that the side sees."""

    def call(path: Any = None) -> Any:
        with side.busy(), _errors_of(path):
            names = _names(side, path)
            if names is None:
                return original(path)
            folder = side.files.absolute(path) if isinstance(path, int) else path
        return _Entries(os.fspath("." if folder is None else folder), names)

    return call


class _Entries:
    """Iterator of `os.scandir` over the names that the side sees in a folder."""

    def __init__(self, folder: str | bytes, names: list[str]) -> None:
        self._those = (
            _Entry(folder, os.fsencode(entry_name) if isinstance(folder, bytes) else entry_name) for entry_name in names
        )

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry:
        return next(self._those)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration."""
        self._those.close()


class _Entry:
    """An `os.DirEntry` without a cache: it asks the file system each time."""

    def __init__(self, folder: Any, name: Any) -> None:
        self.name, self.path = name, os.path.join(folder, name)  # noqa: PTH118

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Returns the status of the entry, or of the file that a link leads to."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)  # noqa: PTH116

    def inode(self) -> int:
        """Returns the inode number."""
        return self.stat(follow_symlinks=False).st_ino

    def _is(self, kind: Callable[[int], bool], follow_symlinks: bool) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """True for a folder."""
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """True for a regular file."""
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """True for a symbolic link."""
        return self._is(stat.S_ISLNK, False)

    def is_junction(self) -> bool:
        """False: only Windows has junctions."""
        return False


# ---- changing -----------------------------------------------------------------------------------------------------


def _marking(follows: bool = True, use: Use = CHANGE) -> Make:
    """Replaces functions that set modes, times or lengths; with MAKE, functions that create something."""

    def make(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **named: Any) -> Any:
            through = follows and named.get("follow_symlinks", True)
            with side.busy():
                place = side.files.changed(path, use, through, named.get("dir_fd"))
            if place is None:
                return original(path, *args, **named)
            named.pop("dir_fd", None)
            with _errors_of(path):
                return original(place, *args, **named)

        return call

    return make


def _removing(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces functions that remove a path: the overlay records the removal."""

    def call(path: Any, *, dir_fd: int | None = None) -> None:
        with side.busy(), _errors_of(path):
            text = side.files.absolute(path, dir_fd)
            if text is not None:
                side.files.overlay.removed(side.files.overlay.key(text, follows=False), original)
                return
        original(path) if dir_fd is None else original(path, dir_fd=dir_fd)

    return call


def _renaming(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.rename` and `os.replace`: the overlay renames, unless both paths are outside it."""

    def call(src: Any, dst: Any, **folders: int | None) -> None:
        files = side.files
        with side.busy(), _errors_of(src, dst):
            old = files.absolute(src, folders.get("src_dir_fd"))
            new = files.absolute(dst, folders.get("dst_dir_fd"))
            if old is not None or new is not None:
                source, target = (path and files.overlay.key(path, follows=False) for path in (old, new))
                files.overlay.renamed(source, target, os.fspath(src), os.fspath(dst), original)
                return
        original(src, dst, **folders)

    return call


def _linking(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.link`: both paths are redirected, and the new one counts as made."""

    def call(src: Any, dst: Any, **named: Any) -> None:
        with side.busy(), _errors_of(src, dst):
            old = side.files.changed(src, CHANGE, named.get("follow_symlinks", True), named.pop("src_dir_fd", None))
            new = side.files.changed(dst, MAKE, False, named.pop("dst_dir_fd", None))
            original(src if old is None else old, dst if new is None else new, **named)

    return call


def _linking_softly(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces `os.symlink`: the link is made where the side has it, and the overlay is read anew."""

    def call(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        with side.busy(), _errors_of(src, dst):
            place = side.files.changed(dst, MAKE, False, dir_fd)
            side.files.overlay.renewed()
            if place is not None:
                original(src, place, target_is_directory)
                return
        original(src, dst, target_is_directory, dir_fd=dir_fd)

    return call


def _writing(original: Callable[..., Any], side: Side) -> Callable[..., Any]:
    """Replaces functions that write to a descriptor, which may have been open before the side."""

    def call(fd: Any, *args: Any, **named: Any) -> Any:
        with side.busy():
            path = side.files.open_before(fd)
        if path is not None:
            side.refuse(
                f"The cell writes to {formatting.clean(path, 120)}, which was open before it: close it, or open it in "
                "this cell."
            )
        return original(fd, *args, **named)

    return call


_FUNCTIONS: Final[dict[Make, str]] = {
    _os_opening: "open",
    _looking(): "stat access chdir statvfs pathconf getxattr listxattr",
    _looking(follows=False): "lstat readlink",
    _getting_folder: "getcwd getcwdb",
    _listing: "listdir",
    _scanning: "scandir",
    _marking(): "chmod chown utime truncate setxattr removexattr",
    _marking(follows=False): "lchmod lchown",
    _marking(follows=False, use=MAKE): "mkdir mkfifo mknod",
    _removing: "remove unlink rmdir",
    _renaming: "rename replace",
    _linking: "link",
    _linking_softly: "symlink",
    _writing: "write writev pwrite pwritev ftruncate fchmod fchown posix_fallocate",
}


def of_python() -> Iterator[tuple[Any, str, Make]]:
    """Yields owner, name and replacement of each file function that this Python has."""
    yield builtins, "open", _opening
    yield io, "open", _opening
    yield io, "FileIO", _opening
    for name in ("exists", "lexists", "isfile", "isdir", "islink"):  # Windows has them in C
        if isinstance(getattr(os.path, name), types.BuiltinFunctionType):
            yield os.path, name, _looking(follows=name not in ("lexists", "islink"))
    for make, names in _FUNCTIONS.items():
        yield from ((os, name, make) for name in names.split() if hasattr(os, name))
