"""Lays a scratch folder over the user's files: changes go to the folder, and other files are read in place.

All state lies in the folder, so that forked and spawned processes share it: `files` has what was written, each file at
the path that the user knows, and `gone` lists what was removed or renamed, one path a line.
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
"""Largest file that is copied: a hard disk (150 MB/s) takes half a minute for it in each side of a trial."""
FREE_SHARE: Final = 0.5
"""Largest copy as a share of the free space on the scratch folder's disk."""
MOST_LINKS: Final = 40
"""Most symbolic links that one path may lead through, as on Linux."""
_numbers = itertools.count()


class CannotCopy(Exception):
    """Says that a file cannot be copied before it is changed; the message is a whole sentence."""


class Overlay:
    """The files as a side sees them. A key is an absolute path without links, as the user knows it."""

    def __init__(self, root: str) -> None:
        """Starts an overlay without changes; Windows: not yet run on one.

        Args:
            root: empty folder, in which nothing is made before the first change.
        """
        self.root = root
        self.files = os.path.join(root, "files")  # noqa: PTH118
        self._gone = os.path.join(root, "gone")  # noqa: PTH118
        self._hidden: set[str] = set()
        self._bytes_read = 0
        """Number of bytes of `gone` that were read."""
        self._folders: dict[str, str] = {}
        """Folder as the cell wrote it -> its key."""

    @property
    def is_clean(self) -> bool:
        """True if nothing was changed yet."""
        return not os.path.lexists(self.files)

    # ---- where a path lies ----------------------------------------------------------------------------------------

    def users(self, path: str) -> str:
        """Returns the user's path for a path in the scratch folder; any other path unchanged."""
        if path != self.files and not path.startswith(self.files + os.sep):
            return path
        below = path[len(self.files) :] or os.sep
        if os.name != "nt":
            return below
        drive, _, rest = below.lstrip(os.sep).partition(os.sep)
        return drive.replace(";", ":").replace("+", os.sep) + os.sep + rest

    def _inside(self, key: str) -> str:
        """Returns a key's place in the scratch folder, where a Windows drive is a folder: `C;`."""
        drive, rest = os.path.splitdrive(key)
        return self.files + (os.sep + drive.replace(":", ";").replace(os.sep, "+") if drive else "") + rest

    def key(self, path: str, follows: bool = True) -> str:
        """Returns the key of an absolute path.

        Args:
            path: path as the cell wrote it.
            follows: follow a symbolic link at the end of the path.
        """
        self._refresh()
        folder, name = os.path.split(path)
        if name in ("", ".", ".."):
            return self._walked(path)
        if folder not in self._folders:
            self._folders[folder] = self._walked(folder)
        return self._below(self._folders[folder], name, 0) if follows else _joined(self._folders[folder], name)

    def place(self, key: str) -> str:
        """Returns a key's present place: in the scratch folder, or the user's own."""
        there = self._inside(key)
        return there if os.path.lexists(there) or self.is_hidden(key) else key

    def is_hidden(self, key: str) -> bool:
        """True if this side removed, replaced or renamed the user's file at a key."""
        below = ""
        while self._hidden and key != below:
            if key in self._hidden:
                return True
            below, key = key, os.path.dirname(key)  # noqa: PTH120
        return False

    def is_users(self, key: str) -> bool:
        """True if the user has a file at the key that this side did not remove."""
        return os.path.lexists(key) and not self.is_hidden(key)

    def names(self, key: str) -> list[str]:
        """Returns the names in a folder.

        Raises:
            OSError: if there is none.
        """
        there = self._inside(key)
        users = os.listdir(key) if not self.is_hidden(key) and Path(key).is_dir() else []  # noqa: PTH208
        ours = os.listdir(there) if Path(there).is_dir() or not Path(self.place(key)).is_dir() else []  # noqa: PTH208
        return list(dict.fromkeys([*(entry for entry in users if not self.is_hidden(_joined(key, entry))), *ours]))

    def is_touched(self, key: str) -> bool:
        """True if a folder's names may differ from those in the user's folder."""
        hidden = self.is_hidden(key) or any(os.path.dirname(hidden_key) == key for hidden_key in list(self._hidden))  # noqa: PTH120
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
        """Returns a place in the scratch folder to change or create the file of a key.

        Args:
            key: key of a file, a folder, a link, or of nothing yet.
            keeps: copy the file's bytes; False if it is about to be overwritten as a whole.
            opens: the file is opened for writing, which its permissions must allow.

        Raises:
            OSError: as the call itself would, if it is not allowed.
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
        """Checks that a file can be created or removed at a key: its folder exists and allows it.

        Raises:
            OSError: if the folder is missing or does not allow it.
        """
        folder = os.path.dirname(key)  # noqa: PTH120
        if self.is_users(folder):
            reason = 0 if Path(folder).is_dir() else errno.ENOTDIR
            reason = reason or (0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES)
            if reason and not Path(self._inside(folder)).is_dir():
                raise OSError(reason, os.strerror(reason), key)
        self._folders_above(key)

    def removed(self, key: str, remove: Any) -> None:
        """Removes a file or an empty folder; `remove`, a function of `os`, raises if it cannot."""
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
        """Renames a file or folder after copying it; `rename` raises if it cannot.

        Args:
            source: key of the old path; None if that path is left alone.
            target: key of the new path; None if that path is left alone.
            old: old path as given.
            new: new path as given.
            rename: function of `os`.
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
        """Forgets resolved folders: after another kind of change, links may lead elsewhere."""
        self._folders.clear()

    def _check_over(self, source: str, target: str) -> None:
        old, new = (Path(self.place(path)) for path in (source, target))
        if not os.path.lexists(new) or source == target:
            return
        is_folder, onto_folder = (path.is_dir() and not path.is_symlink() for path in (old, new))
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
        """Creates, in the scratch folder, those folders above a key that exist."""
        folder = os.path.dirname(key)  # noqa: PTH120
        if folder == key:  # the root of all
            Path(self._inside(folder)).mkdir(parents=True, exist_ok=True)
        elif not os.path.lexists(self._inside(folder)) and self.is_users(folder) and Path(folder).is_dir():
            self._folders_above(folder)
            mode = stat.S_IMODE(Path(folder).stat().st_mode) | stat.S_IRWXU
            Path(self._inside(folder)).mkdir(mode, exist_ok=True)

    def _copy(self, key: str, there: str, found: os.stat_result, keeps: bool) -> None:
        """Copies a file under another name first, so that of two threads or processes the first copy counts."""
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
            try:
                os.link(copy, there)
            except FileExistsError:
                raise
            except OSError:  # the disk has no hard links
                copy.rename(there)
        finally:
            copy.unlink(missing_ok=True)

    # ---- what was removed -----------------------------------------------------------------------------------------

    def _hide(self, key: str) -> None:
        Path(self.files).mkdir(exist_ok=True)
        line = json.dumps(key).encode() + b"\n"
        place = os.open(self._gone, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(place, line)  # one write, so that lines of other processes do not mix in
        finally:
            os.close(place)
        self._refresh()

    def _refresh(self) -> None:
        """Reads what this or another process has removed since the last call."""
        begin = self._bytes_read  # two threads may read the same lines, which is harmless
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
