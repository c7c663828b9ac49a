"""Puts the files of one side back as they were, byte for byte, from what is kept aside of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from gpu_doctor import formatting
from gpu_doctor.trials.side_effects.file_states import ABSENT, FILE, FOLDER, LINK, Was, look, remove


class PutBack:
    """One time of putting back: new files go, then folders, files and links return, then modes and times."""

    def __init__(
        self,
        aside: Path | None,
        held: Mapping[tuple[int, int], Was],
        folders: Mapping[str, tuple[int, int]],
        replaced: Collection[str] = (),
    ) -> None:
        """Nothing is changed yet.

        Args:
            aside: where links and copies lie.
            held: what is kept of a file, by its inode.
            folders: path -> when it was read and changed, in ns, of folders in which something was touched.
            replaced: folders that were gone from their path for a while: all that was in them was touched.
        """
        self._aside, self._held, self._folders, self._replaced = aside, held, folders, replaced
        self._touched: frozenset[str] = frozenset()
        self._failed: set[str] = set()
        self.notes: list[str] = []
        """A sentence for each path that could not be put back."""

    def all(self, touched: Iterable[Was]) -> None:
        """Puts back what was touched."""
        touched = list(touched)
        self._touched = frozenset(was.path for was in touched)
        shallow = sorted(touched, key=lambda was: was.path.count(os.sep))
        self._each((was for was in shallow if was.kind == ABSENT), self._new)
        self._each((was for was in shallow if was.kind == FOLDER), self._folder)
        self._each((was for was in shallow if was.kind == LINK), self._link)
        files = [was for was in shallow if was.kind == FILE]
        self._each(files, self._file)
        self._each(files, self._bytes)  # when all are there: one file may have two names
        self._each(reversed([was for was in shallow if was.kind in (FILE, FOLDER, LINK)]), self._marks)
        for path, times in sorted(self._folders.items(), key=lambda one: -one[0].count(os.sep)):
            if Path(path).is_dir():
                self._each([Was(path, FOLDER)], lambda was, times=times: os.utime(was.path, ns=times))  # type: ignore[misc]

    def _each(self, those: Iterable[Was], put: Callable[[Was], None]) -> None:
        """One that cannot be put back never keeps the others from it."""
        for was in those:
            try:
                if was.path not in self._failed:
                    put(was)
            except Exception as error:
                self._failed.add(was.path)
                self.notes.append(f"{formatting.clean(was.path, 120)} could not be put back: {error}")

    def _new(self, was: Was) -> None:
        remove(look(was.path))

    def _folder(self, was: Was) -> None:
        now = look(was.path)
        if now.kind != FOLDER:
            remove(now)
            Path(was.path).mkdir(parents=True)
        elif not {was.path, *map(str, Path(was.path).parents)}.isdisjoint(self._replaced):
            for one in Path(was.path).iterdir():  # all that was in it is known: the rest came with the other folder
                if str(one) not in self._touched:
                    remove(look(str(one)))

    def _link(self, was: Was) -> None:
        now = look(was.path)
        if now.kind != LINK or now.target != was.target:
            remove(now)
            self._parent(was)
            os.symlink(was.target, was.path)  # noqa: PTH211

    def _file(self, was: Was) -> None:
        """The very file stands at its path again, or one with the same bytes where it could not be linked."""
        now = look(was.path)
        if now.kind == FILE and now.inode == was.inode:
            return
        if not was.is_held or self._aside is None:
            raise OSError("it was deleted or replaced by something that gpu_doctor cannot see")
        remove(now)
        self._parent(was)
        if was.link:
            os.link(self._aside / was.link, was.path)
        else:
            shutil.copyfile(self._aside / was.copy, was.path)

    def _parent(self, was: Was) -> None:
        Path(was.path).parent.mkdir(parents=True, exist_ok=True)

    def _bytes(self, was: Was) -> None:
        """Its bytes, in place: whoever has it open has the right file."""
        copy = was.copy or self._held.get(was.inode, was).copy
        now = look(was.path)
        if not copy and now.size == was.size:
            return
        if not copy and now.size < was.size:
            raise OSError(f"it lost {formatting.size(was.size - now.size)} in a way that gpu_doctor cannot see")
        if not os.access(was.path, os.W_OK):
            Path(was.path).chmod(was.mode | 0o200)
        with Path(was.path).open("r+b") as file:
            if copy and self._aside is not None:
                with (self._aside / copy).open("rb") as kept:
                    shutil.copyfileobj(kept, file, 1 << 20)
            file.truncate(was.size)

    def _marks(self, was: Was) -> None:
        if was.kind != LINK and look(was.path).mode != was.mode:
            Path(was.path).chmod(was.mode)
        if was.kind == FILE or (was.kind == LINK and os.utime in os.supports_follow_symlinks):
            os.utime(was.path, ns=(was.accessed_ns, was.modified_ns), follow_symlinks=was.kind != LINK)
