"""A scratch folder over the user's files: changes lie in it, and what it does not have is read where the user has it.

The folder is all that there is of it, so that forked and spawned processes share it: `files` has what was written, each
at the path that the user knows, and `gone` lists what was removed or renamed, one path a line.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpu_doctor import formatting

COPIED_BYTES: Final = 4 << 30
"""A larger file is not copied: at the 150 MB/s of a hard disk that takes half a minute in each side of a trial."""
FREE_SHARE: Final = 0.5
"""A copy may take this part of what is free on the disk of the scratch folder."""
MOST_LINKS: Final = 40
"""Symbolic links that one path may lead through, as on Linux."""
_numbers = itertools.count()


class CannotCopy(Exception):
    """A file cannot be copied before it is changed; the message is a whole sentence."""


class Overlay:
    """The files as a side sees them. A key is an absolute path without links, as the user knows it."""

    def __init__(self, root: str) -> None:
        """Nothing is made in `root`, an empty folder, before the first change. Windows: not yet run on one."""
        self.root = root
        self.files = os.path.join(root, "files")  # noqa: PTH118
        self._gone = os.path.join(root, "gone")  # noqa: PTH118
        self._hidden: set[str] = set()
        self._bytes_read = 0
        """Bytes of `gone` that were read."""
        self._folders: dict[str, str] = {}
        """Folder, as it was written -> its key."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was changed yet."""
        return not os.path.lexists(self.files)

    # ---- where a path lies ----------------------------------------------------------------------------------------

    def users(self, path: str) -> str:
        """A path in the scratch folder as the user knows it; any other as it is."""
        if path != self.files and not path.startswith(self.files + os.sep):
            return path
        below = path[len(self.files) :] or os.sep
        if os.name != "nt":
            return below
        drive, _, rest = below.lstrip(os.sep).partition(os.sep)
        return drive.replace(";", ":").replace("+", os.sep) + os.sep + rest

    def _inside(self, key: str) -> str:
        """Where a key lies in the scratch folder, which names Windows' drives by folders: `C;`."""
        drive, rest = os.path.splitdrive(key)
        return self.files + (os.sep + drive.replace(":", ";").replace(os.sep, "+") if drive else "") + rest

    def key(self, path: str, follows: bool = True) -> str:
        """The key of an absolute path.

        Args:
            path: as the cell wrote it.
            follows: whether a symbolic link at its end is followed.
        """
        self._refresh()
        folder, name = os.path.split(path)
        if name in ("", ".", ".."):
            return self._walked(path)
        if folder not in self._folders:
            self._folders[folder] = self._walked(folder)
        return self._below(self._folders[folder], name, 0) if follows else _joined(self._folders[folder], name)

    def place(self, key: str) -> str:
        """Where that lies now: in the scratch folder, or where the user has it."""
        there = self._inside(key)
        return there if os.path.lexists(there) or self.is_hidden(key) else key

    def is_hidden(self, key: str) -> bool:
        """Whether what the user has at a key was removed, replaced or renamed in this side."""
        below = ""
        while self._hidden and key != below:
            if key in self._hidden:
                return True
            below, key = key, os.path.dirname(key)  # noqa: PTH120
        return False

    def is_users(self, key: str) -> bool:
        """Whether something of the user's stands there, which was not removed."""
        return os.path.lexists(key) and not self.is_hidden(key)

    def names(self, key: str) -> list[str]:
        """The names in a folder.

        Raises:
            OSError: if there is none.
        """
        there = self._inside(key)
        users = os.listdir(key) if not self.is_hidden(key) and Path(key).is_dir() else []  # noqa: PTH208
        ours = os.listdir(there) if Path(there).is_dir() or not Path(self.place(key)).is_dir() else []  # noqa: PTH208
        return list(dict.fromkeys([*(one for one in users if not self.is_hidden(_joined(key, one))), *ours]))

    def is_touched(self, key: str) -> bool:
        """Whether a folder's names may differ from those that the user has there."""
        hidden = self.is_hidden(key) or any(os.path.dirname(one) == key for one in list(self._hidden))  # noqa: PTH120
        return hidden or os.path.lexists(self._inside(key))

    def _walked(self, path: str, links: int = 0) -> str:
        drive, rest = os.path.splitdrive(path)
        here = drive + os.sep
        for part in rest.split(os.sep):  # noqa: PTH206
            if part == "..":
                here = os.path.dirname(here)  # noqa: PTH120
            elif part not in ("", "."):
                here = self._below(here, part, links)
        return here

    def _below(self, folder: str, name: str, links: int) -> str:
        here = _joined(folder, name)
        try:
            target = os.readlink(self.place(here))  # noqa: PTH115
        except OSError:  # no link, or nothing there
            return here
        if links >= MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), here)
        return self._walked(os.path.join(folder, target), links + 1)  # noqa: PTH118

    # ---- changes --------------------------------------------------------------------------------------------------

    def changed(self, key: str, keeps: bool = True, opens: bool = False) -> str:
        """Where what stands at a key may be changed, or something made, without touching what the user has.

        Args:
            key: of a file, a folder, a link, or of nothing yet.
            keeps: a file's bytes are copied; else it is about to be overwritten as a whole.
            opens: it is opened to be written to, which the user must be allowed to.

        Raises:
            OSError: as the call would, where it is not allowed there.
            CannotCopy: if the file is too large to be copied.
        """
        there = self._inside(key)
        if os.path.lexists(there):
            return there
        if not self.is_users(key):
            self.makes(key)
            return there
        found = os.lstat(key)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            return key  # a pipe or a device
        if opens and not stat.S_ISLNK(found.st_mode) and not os.access(key, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), key)
        self._folders_above(key)
        with suppress(FileExistsError):  # another thread or process was faster
            if stat.S_ISDIR(found.st_mode):
                Path(there).mkdir(stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
            elif stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(key), there)  # noqa: PTH115, PTH211
            else:
                self._copy(key, there, found, keeps)
        return there

    def makes(self, key: str) -> None:
        """Something is about to be made or removed at a key: its folder must be there and let the user do it.

        Raises:
            OSError: if it does not.
        """
        folder = os.path.dirname(key)  # noqa: PTH120
        if self.is_users(folder):
            reason = 0 if Path(folder).is_dir() else errno.ENOTDIR
            reason = reason or (0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES)
            if reason and not Path(self._inside(folder)).is_dir():
                raise OSError(reason, os.strerror(reason), key)
        self._folders_above(key)

    def removed(self, key: str, remove: Any) -> None:
        """Removes a file or an empty folder with a function of `os`, or lets that say why not."""
        there, is_folder, users = self._inside(key), remove.__name__ == "rmdir", self.is_users(key)
        self.makes(key)
        if is_folder and Path(self.place(key)).is_dir() and self.names(key):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), key)
        if not users or os.path.lexists(there):
            remove(there)
        elif is_folder != stat.S_ISDIR(os.lstat(key).st_mode):
            wrong = errno.ENOTDIR if is_folder else errno.EISDIR
            raise OSError(wrong, os.strerror(wrong), key)
        if users:
            self._hide(key)
        self._folders.clear()

    def renamed(self, source: str | None, target: str | None, old: Any, new: Any, rename: Any) -> None:
        """Renames with a function of `os`, or lets that say why not; what is renamed is copied first.

        Args:
            source: its key; None where that path is left alone.
            target: the same.
            old: the paths as they were given.
            new: the same.
            rename: the function.
        """
        hidden = [key for key in (source, target) if key is not None and self.is_users(key)]
        if source is not None and os.path.lexists(self.place(source)):
            self.makes(source)
            if target is not None:
                self._check_over(source, target)
            self._copy_all(source)
        if target is not None:
            self.makes(target)
        rename(old if source is None else self._inside(source), new if target is None else self._inside(target))
        for key in hidden:
            self._hide(key)
        self._folders.clear()

    def renewed(self) -> None:
        """Names were changed otherwise: links may lead elsewhere."""
        self._folders.clear()

    def _check_over(self, source: str, target: str) -> None:
        old, new = (Path(self.place(one)) for one in (source, target))
        if not os.path.lexists(new) or source == target:
            return
        is_folder, onto_folder = (one.is_dir() and not one.is_symlink() for one in (old, new))
        wrong = errno.ENOTEMPTY if is_folder and onto_folder and self.names(target) else 0
        if is_folder != onto_folder:
            wrong = errno.ENOTDIR if is_folder else errno.EISDIR
        if wrong:
            raise OSError(wrong, os.strerror(wrong), target)

    def _copy_all(self, key: str) -> None:
        there = Path(self.changed(key))
        if there.is_dir() and not there.is_symlink():
            for name in self.names(key):
                self._copy_all(_joined(key, name))

    def _folders_above(self, key: str) -> None:
        """Makes the folders of a key in the scratch folder as the user has them; those that nobody has are not made."""
        folder = os.path.dirname(key)  # noqa: PTH120
        if folder == key:  # the root of all
            Path(self._inside(folder)).mkdir(parents=True, exist_ok=True)
        elif not os.path.lexists(self._inside(folder)) and self.is_users(folder) and Path(folder).is_dir():
            self._folders_above(folder)
            mode = stat.S_IMODE(Path(folder).stat().st_mode) | stat.S_IRWXU
            Path(self._inside(folder)).mkdir(mode, exist_ok=True)

    def _copy(self, key: str, there: str, found: os.stat_result, keeps: bool) -> None:
        """Copies a file whole before it is seen: of two threads or processes the first one's copy counts."""
        room = min(COPIED_BYTES, int(FREE_SHARE * shutil.disk_usage(self.root).free))
        if keeps and found.st_size > room:
            raise CannotCopy(
                f"The cell changes {formatting.clean(key, 120)} ({formatting.size(found.st_size)}), and a trial copies "
                f"at most {formatting.size(room)} of a file before that: let the cell write to another file."
            )
        copy = Path(self.root, f"copy-{os.getpid()}-{next(_numbers)}")
        try:
            if keeps:
                shutil.copyfile(key, copy)
                os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            else:
                copy.touch()
            copy.chmod(stat.S_IMODE(found.st_mode))
            os.link(copy, there)
        finally:
            copy.unlink(missing_ok=True)

    # ---- what was removed -----------------------------------------------------------------------------------------

    def _hide(self, key: str) -> None:
        Path(self.files).mkdir(exist_ok=True)
        line = json.dumps(key).encode() + b"\n"
        place = os.open(self._gone, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(place, line)  # whole, whoever else adds one meanwhile
        finally:
            os.close(place)
        self._refresh()

    def _refresh(self) -> None:
        """Takes in what this or another process has removed since the last time."""
        begin = self._bytes_read  # of two threads both may read the same: that is harmless, and none is left out
        try:
            if os.stat(self._gone).st_size == begin:  # noqa: PTH116
                return
            with Path(self._gone).open("rb") as file:
                file.seek(begin)
                lines = file.read()
        except OSError:  # nothing was removed yet
            return
        whole = lines[: lines.rfind(b"\n") + 1]
        self._hidden.update(json.loads(line) for line in whole.splitlines())
        self._bytes_read = begin + len(whole)
        self._folders.clear()


def _joined(folder: str, name: str) -> str:
    return folder + name if folder.endswith(os.sep) else folder + os.sep + name
