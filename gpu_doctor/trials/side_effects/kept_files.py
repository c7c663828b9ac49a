"""Keeps what a trial's cell is about to write, rename or delete, and puts it back after every side.

Each file is kept at its first touch, before it is changed: a hard link brings back what is deleted or replaced, the
length what is appended to, and only a file that is overwritten in place is copied. What was copied once serves the
whole trial, so that a side in which something had to be copied is run again, and measured then: `copied` says so.

Links and copies lie in a private folder among the temporary files, which goes with this object. A file too large to be
copied is not harmed: the side ends before it is touched, and `refusal` says why.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.capture import RunEnded
from gpu_doctor.trials.side_effects.file_states import (
    ABSENT,
    APPEND,
    CONTENT,
    FILE,
    FOLDER,
    MARKS,
    NAME,
    OTHER,
    Was,
    look,
)
from gpu_doctor.trials.side_effects.open_things import OpenThing
from gpu_doctor.trials.side_effects.put_back import PutBack
from gpu_doctor.trials.side_effects.told_aside import ToldAside

COPIES_BYTES: Final = 4 << 30
"""Copies may take so much at most. They are written back after every side: at the 150 MB/s of a hard disk that takes
half a minute, which is half of what a trial takes as a rule."""
FREE_SHARE: Final = 0.5
"""And this part of what is free on the disk: the cell's own files need the rest."""
MOST_IN_A_FOLDER: Final = 20_000
"""Files of a folder that is renamed. Each is linked aside, which takes about 20 us (measured on ext4)."""


class CannotKeep(Exception):
    """A file cannot be kept; the message is a whole sentence."""


def room_bytes(folder: Path) -> int:
    """Bytes that copies in a folder may take."""
    return min(COPIES_BYTES, int(FREE_SHARE * shutil.disk_usage(folder).free))


class KeptFiles:
    """The files of one trial: `before` each touch, `put_back` after each side."""

    def __init__(
        self,
        room: Callable[[Path], int] = room_bytes,
        copy: Callable[[str, Path, int], None] | None = None,
    ) -> None:
        """Args: room: bytes that the copies may take. copy: copies the first so many bytes of a file to another."""
        self.refusal = ""
        """Why the side had to be ended; empty if it had not."""
        self.copied = False
        """Bytes were copied while steps were measured."""
        self.in_step: Callable[[], bool] = lambda: False
        """Whether steps are being measured."""
        self.open: weakref.WeakSet[Any] = weakref.WeakSet()
        """What the cell has opened to write to and is still there: what is in its buffers must not be written later."""
        self.open_unseen = False
        """It has opened what cannot be asked later whether it is still there, such as a database."""
        self._copy_first = copy or _copied_first
        self._process = os.getpid()
        self._aside = _folder()
        self._room = room(self._aside) if self._aside is not None else 0
        self._told = ToldAside(self._aside) if self._aside is not None else None
        if self._aside is not None:
            weakref.finalize(self, _removed, self._aside, self._process)
        self._side: dict[str, Was] = {}
        """What was touched in this side, by path."""
        self._known: dict[str, Was] = {}
        """What was touched in earlier ones: its links and copies hold while it is as it was."""
        self._inodes: dict[tuple[int, int], Was] = {}
        self._folders: dict[str, tuple[int, int]] = {}
        self._done: set[tuple[str, str]] = set()
        self._turns: dict[int, threading.RLock] = {}
        self._number = self._taken = 0
        self._opened: list[OpenThing] = []
        self._notes: list[str] = []
        self._trees: dict[str, Was] = {}
        """Folders that may be deleted, replaced or renamed as a whole."""
        self._replaced: set[str] = set()
        """Those that were: what was in them is kept, and what is in them now is new."""
        self.seen: dict[str, bool] = {}
        """Path, as the cell wrote it -> whether something was there before; of what was written in this side."""

    def begin(self, in_step: Callable[[], bool]) -> None:
        """A side begins; `in_step` says whether steps are being measured."""
        self.hear()
        self._forget_side()
        self.refusal, self.copied, self.in_step = "", False, lambda: False
        self._keep_opened()
        self.in_step = in_step

    def keep_open(self, things: Iterable[OpenThing]) -> None:
        """Keeps what was open before the trial, for all of its sides.

        Raises:
            CannotKeep: if its files are too large to be copied.
        """
        self._opened += things
        self._keep_opened()

    def _keep_opened(self) -> None:
        for one in self._opened:
            for path in one.paths:
                self._keep(path, one.how)
                if one.how != MARKS:
                    self._keep(path, NAME)

    def before(self, path: str, how: str) -> None:
        """Keeps what stands at an absolute path; to be called before the cell's own call.

        Args:
            path: as the cell wrote it.
            how: CONTENT, APPEND, NAME, MARKS or NEW.

        Raises:
            RunEnded: if it cannot be kept: the side ends before it is touched.
        """
        if (path, how) in self._done:
            return
        try:
            with self._turn():
                self._keep(path, how)
        except CannotKeep as refused:
            self._refuse(str(refused))
        except Exception as error:
            if self._is_over():
                return
            name = formatting.clean(path, 120)
            self._refuse(
                f"{name} could not be kept ({formatting.clean(error, 120)}), so that a trial cannot put it back."
            )
        self._done.add((path, how))

    def note(self, path: str, there: bool) -> None:
        """The cell has written to a path; `there`: something was there before."""
        with self._turn():
            self._note(path, there)

    def _note(self, path: str, there: bool) -> None:
        for tree in [tree for tree, was in self._trees.items() if look(tree).inode != was.inode]:
            del self._trees[tree]
            self._replaced.add(tree)
            with contextlib.suppress(OSError):
                self._tell({"replaced": tree})
        if path not in self.seen:
            self.seen[path] = there
            with contextlib.suppress(OSError):  # the folder is gone with its trial, or full: the cell goes on
                self._tell({"seen": path, "there": there})

    def hear(self) -> None:
        """Takes in what forked processes have touched."""
        for said in self._told.heard() if self._told is not None else ():
            if "was" in said:
                was = Was(**said["was"])
                was = self._side.setdefault(was.path, was)
                if was.kind == FILE:
                    self._inodes.setdefault(was.inode, was)
                self._folders.setdefault(said["folder"], tuple(said["times"]))
            elif "held" in said:
                held = self._inodes.get((said["device"], said["number"]))
                if held is not None:
                    held.link, held.copy = held.link or said["link"], held.copy or said["held"]
                self._taken += said["bytes"]
                self.copied = self.copied or bool(said["held"])
            elif "replaced" in said:
                self._replaced.add(said["replaced"])
            elif "seen" in said:
                self.seen.setdefault(said["seen"], said["there"])
            else:
                self.refusal = self.refusal or said["refusal"]

    def put_back(self) -> list[str]:
        """Puts the files of the side back; may be called again and again.

        Returns:
            A sentence for each path that could not be put back, then or in an earlier side.
        """
        if os.getpid() != self._process:
            return []
        if self.open_unseen or not all(getattr(opened, "closed", False) for opened in list(self.open)):
            gc.collect()  # what the cell left open and refers to itself, as a database does, writes when it goes
        for opened in list(self.open):
            with contextlib.suppress(Exception):
                opened.flush()
        self._each_opened(lambda one: one.settle())
        self.hear()
        back = PutBack(self._aside, self._inodes, self._folders, self._replaced)
        touched = [was for was in self._side.values() if was.kind != OTHER]
        back.all(touched)
        for was in touched:
            now = look(was.path)
            now.link, now.copy = was.link, was.copy or self._inodes.get(was.inode, was).copy
            if now.kind == was.kind and (now.mode, now.size, now.modified_ns) == (was.mode, was.size, was.modified_ns):
                self._known[was.path] = now
        self._forget_side()
        self._notes += back.notes
        self._each_opened(lambda one: one.resume())
        return list(dict.fromkeys(self._notes))

    def _each_opened(self, do: Callable[[OpenThing], None]) -> None:
        for one in self._opened:
            try:
                do(one)
            except Exception as error:
                self._notes.append(f"{formatting.clean(one.name, 80)} could not be put back where it was: {error}")

    def _forget_side(self) -> None:
        self._side.clear()
        self._inodes.clear()
        self._folders.clear()
        self._trees.clear()
        self._replaced.clear()
        self._done.clear()
        self.seen.clear()
        self.open.clear()
        self.open_unseen = False

    def _turn(self) -> threading.RLock:
        """Threads take turns: one that copied a file while another already wrote to it would keep the trial's bytes.

        A forked process has a lock of its own, as nobody would give back one that was held when it was forked.
        """
        return self._turns.setdefault(os.getpid(), threading.RLock())

    # ---- one touch ------------------------------------------------------------------------------------------------

    def _keep(self, path: str, how: str) -> None:
        self.hear()
        follows = how in (CONTENT, APPEND, MARKS)
        folder, name = os.path.split(path)
        real = os.path.realpath(path) if follows else str(Path(os.path.realpath(folder), name))
        was = self._touch(real)
        if how == NAME:
            self._done.clear()  # what stands at a path may be another file from here on
            if was is not None:
                self._hold(was)
        elif how == CONTENT:
            now = look(real)
            held = self._inodes.get(now.inode) if now.kind == FILE else None
            if held is not None and not held.copy and held.size:
                self._copy(real, held)

    def _touch(self, path: str) -> Was | None:
        """What stood at a path before this side; None for what lies in a folder that is new."""
        if path in self._side:
            return self._side[path]
        if any(self._is_new(str(one)) for one in Path(path).parents):
            return None
        was, known = look(path), self._known.get(path)
        if known is not None and known.same(was):
            was.link, was.copy = known.link, known.copy
        folder = str(Path(path).parent)
        with contextlib.suppress(OSError):
            found = Path(folder).stat()
            self._folders.setdefault(folder, (found.st_atime_ns, found.st_mtime_ns))
            if was.kind == FOLDER:
                found = Path(path).stat()
                self._folders.setdefault(path, (found.st_atime_ns, found.st_mtime_ns))
        self._side[path] = was
        if was.kind == FILE:
            was.is_also(self._inodes.setdefault(was.inode, was))
        self._tell({"was": was.plain(), "folder": folder, "times": self._folders.get(folder, (0, 0))})
        return was

    def _is_new(self, folder: str) -> bool:
        return folder in self._replaced or (folder in self._side and self._side[folder].kind == ABSENT)

    def _hold(self, was: Was) -> None:
        """Lets what may be deleted, replaced or renamed be brought back."""
        if was.kind == FOLDER and was.path not in self._replaced and look(was.path).inode == was.inode:
            self._hold_tree(was.path)
            self._trees[was.path] = was
        if was.kind != FILE or was.link or look(was.path).inode != was.inode:
            return
        if self._aside is None:
            raise CannotKeep(_NOWHERE.format(formatting.clean(was.path, 120)))
        name = self._name()
        try:
            os.link(was.path, self._aside / name, follow_symlinks=False)
        except (OSError, NotImplementedError):  # another disk, or one that has no links
            if not was.copy:
                self._copy(was.path, was)
            return
        was.link = name
        self._tell({"held": "", "link": name, "device": was.device, "number": was.number, "bytes": 0})

    def _hold_tree(self, path: str) -> None:
        """Everything in a folder, which may be renamed as a whole."""
        count, stack = 0, [path]
        while stack:
            for path_below in Path(stack.pop()).iterdir():
                count += 1
                if count > MOST_IN_A_FOLDER:
                    raise CannotKeep(
                        f"The cell renames {formatting.clean(path, 120)}, which holds more than {MOST_IN_A_FOLDER} "
                        "files, and a trial puts no more back: let the cell write to another folder."
                    )
                was = self._touch(str(path_below))
                if was is not None and was.kind == FOLDER:
                    stack.append(str(path_below))
                elif was is not None:
                    self._hold(was)

    def _copy(self, path: str, was: Was) -> None:
        """Copies what a file held before; `path` is where it stands now."""
        name, left = formatting.clean(was.path, 120), self._room - self._taken
        if self._aside is None:
            raise CannotKeep(_NOWHERE.format(name))
        if was.size > left:
            raise CannotKeep(
                f"The cell overwrites {name} ({formatting.size(was.size)}), and a trial may copy only "
                f"{formatting.size(max(left, 0))} more to put files back: move that file away, or let the cell write "
                "to another one."
            )
        copy = self._name()
        measured = self.in_step() or os.getpid() != self._process
        self._copy_first(path, self._aside / copy, was.size)
        was.copy = copy
        self._taken += was.size
        self.copied = self.copied or measured
        self._tell({"held": copy, "link": "", "device": was.device, "number": was.number, "bytes": was.size})

    def _refuse(self, why: str) -> None:
        self.refusal = self.refusal or why
        with contextlib.suppress(OSError):
            self._tell({"refusal": why})
        raise RunEnded("refused")

    def _tell(self, what: dict[str, Any]) -> None:
        if os.getpid() != self._process and self._told is not None:
            self._told.tell(what)

    def _is_over(self) -> bool:
        """A process that outlived the trial: nobody waits for what it would tell."""
        return os.getpid() != self._process and (self._aside is None or not self._aside.exists())

    def _name(self) -> str:
        self._number += 1
        return f"{os.getpid()}-{self._number}"


_NOWHERE: Final = "{} cannot be kept, as there is no folder for temporary files: a trial could not put it back."


def _copied_first(path: str, to: Path, size: int) -> None:
    """Copies the first bytes of a file, or raises where there are not so many."""
    left = size
    with Path(path).open("rb") as file, to.open("xb") as copy:
        while left:
            part = file.read(min(left, 1 << 20))
            if not part:
                raise OSError("it became shorter while it was copied")
            copy.write(part)
            left -= len(part)


def _folder() -> Path | None:
    try:
        return Path(tempfile.mkdtemp(prefix="gpu_doctor-"))
    except OSError:  # a machine with nowhere to write to
        return None


def _removed(folder: Path, process: int) -> None:
    """Takes the folder away, not in a forked process that comes to its end."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
