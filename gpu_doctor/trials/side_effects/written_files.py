"""Watches which files code writes, replaces or deletes in this process, and has them kept before it does.

Python's own ways of opening a file (`open`, `os.open`, and all that stands on them: pathlib, numpy, pandas, PIL) are
watched, renaming and deleting, wherever a module or the notebook has such a function by another name; and the writers
of torch, safetensors, SQLite, HDF5 and others, which open files past Python. Forked processes, such as a loader's
workers, keep and tell what they touch. Not seen is what other libraries in C open, what is cut off a file that was
opened to append, and what processes do that were started before or otherwise.
"""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gpu_doctor.capture import Patches
from gpu_doctor.trials.side_effects.arrivals import told_of_arrivals
from gpu_doctor.trials.side_effects.caches import caches
from gpu_doctor.trials.side_effects.class_stand_in import class_stand_in
from gpu_doctor.trials.side_effects.file_functions import (
    CLASSES,
    LIBRARIES,
    OPENS,
    OS,
    Reads,
    Touched,
    library_functions,
    opened,
)
from gpu_doctor.trials.side_effects.file_states import MARKS, path_of, working_folder
from gpu_doctor.trials.side_effects.kept_files import KeptFiles

_ELSEWHERE: Final = ("/dev/", "/proc/", "/sys/")
"""What looks like a file and is none."""
_IN_MEMORY: Final = "/dev/shm/"
"""And what is one among them."""
_SCRATCH: Final = ("gpu_doctor-", "pymp-", "joblib_memmapping_folder_", "matplotlib-", "torch-shm-")
"""Among the temporary files, what we or a library make once in a process and use until its end."""
_BELOW: Final = ("os", "io", "_io", "posix", "nt", "builtins", "gpu_doctor")
"""Modules in which a function is not looked for by another name: where it stands itself, Python's imports, and ours."""
_SUPPORTED: Final = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
"""Sets of functions in `os`, of which shutil asks what it may call."""


class WrittenFiles:
    """Context manager; afterwards `paths` has what was written, and `deleted` what was there before and is gone.

    The wrappers change nothing: arguments, results and exceptions are the original's.
    """

    def __init__(self, kept: KeptFiles, namespace: dict[str, Any] | None = None) -> None:
        """Nothing is watched yet.

        Args:
            kept: keeps what is touched.
            namespace: of the code, where it may have such functions by name.
        """
        self.paths: tuple[str, ...] = ()
        """Each once, in the order of the first write; relative where they are under the working folder."""
        self.deleted: tuple[str, ...] = ()
        self.kept = kept
        self._namespace = namespace
        self._patches = Patches()
        self._folder = working_folder()
        self._temporary = _temporary_folder()  # asked now: the look for it opens files, under a lock of its own
        self._caches = caches(self._temporary, self._folder)
        self._ours = threading.local()
        self._stand_ins: dict[int, tuple[Any, Any]] = {}
        """id of an original -> it, and what stands for it."""
        self._modules = frozenset(sys.modules)
        self._over = False
        """Whoever still has a stand-in then has the original in it."""

    def __enter__(self) -> WrittenFiles:
        try:
            self._watch()
        except BaseException:  # an interrupt: nobody calls `__exit__` then
            self._patches.restore()
            raise
        return self

    def _watch(self) -> None:
        for module, name in OPENS:
            if hasattr(sys.modules.get(module), name):
                self._wrap(sys.modules[module], name, opened)
        for name, reads in OS.items():
            if hasattr(os, name):
                self._wrap(os, name, reads)
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10's pathlib keeps functions of its own
        for name in ("open", *OS) if accessor is not None else ():
            if hasattr(accessor, name):
                self._accessor(accessor, name)
        self._libraries()
        self._supported()
        awaited = frozenset(module for module, *_ in LIBRARIES)
        told_of_arrivals(lambda module: self._libraries(), awaited.__contains__, self._patches)

    def _wrap(self, owner: Any, name: str, reads: Reads) -> None:
        original = getattr(owner, name)
        known = self._stand_ins.get(id(original))
        stand_in = known[1] if known is not None else self._stand_in(owner, name, reads, original)
        self._stand_ins[id(original)] = original, stand_in
        self._patches.wrap(owner, name, lambda one: stand_in)

    def _stand_in(self, owner: Any, name: str, reads: Reads, original: Any) -> Any:
        if (getattr(owner, "__name__", ""), name) in CLASSES:
            ours = weakref.ref(self)  # a class is a circle, which would keep what is kept

            def around(make: Callable[..., Any]) -> Callable[..., Any]:
                watch = ours()
                return make if watch is None else watch._around(reads, make)

            return class_stand_in(original, around)
        stand_in = self._around(reads, original)
        if isinstance(owner, type) and not isinstance(inspect.getattr_static(owner, name), staticmethod):
            return stand_in
        # Static, as what it stands for is: a class that has `open` as an attribute must not bind it.
        return staticmethod(stand_in)

    def _libraries(self) -> None:
        """Wraps the functions of libraries that are loaded by now."""
        wrapped = {id(stand_in) for _, stand_in in self._stand_ins.values()}
        for owner, name, reads in library_functions():
            if id(getattr(owner, name)) not in wrapped:
                self._wrap(owner, name, reads)
        self._by_other_names()

    def _accessor(self, accessor: Any, name: str) -> None:
        reads = opened if name == "open" else OS[name]
        self._patches.wrap(accessor, name, lambda original: staticmethod(self._around(reads, original)))

    def _by_other_names(self) -> None:
        """Puts the stand-ins where a module, or the notebook, has the original by a name of its own."""
        stand_ins = self._stand_ins
        for module, one in list(sys.modules.items()):
            space = getattr(one, "__dict__", None)
            if type(space) is not dict or module in _BELOW or module.startswith("gpu_doctor."):
                continue
            # Most modules have none: asked without a loop of Python's, as some 100 000 values are looked at.
            if not stand_ins.keys().isdisjoint(map(id, list(space.values()))):
                for name in [name for name, value in list(space.items()) if id(value) in stand_ins]:
                    self._named(space, name, stand_ins[id(space[name])][1], module)
        if self._namespace is not None:
            for name in [name for name, value in list(self._namespace.items()) if id(value) in stand_ins]:
                self._named(self._namespace, name, stand_ins[id(self._namespace[name])][1], "the notebook")
            for name, value in list(self._namespace.items()):
                if type(value) is functools.partial and id(value.func) in stand_ins:
                    stand_in = functools.partial(stand_ins[id(value.func)][1], *value.args, **value.keywords)
                    self._named(self._namespace, name, stand_in, "the notebook")

    def _named(self, space: dict[str, Any], name: str, stand_in: Any, where: str) -> None:
        original = space[name]

        def remove() -> None:
            if space.get(name) is stand_in:
                space[name] = original

        self._patches.hook(f"{where}.{name}", remove)
        space[name] = stand_in

    def _taken_by_name(self) -> None:
        """Gives modules that were loaded meanwhile, and took a stand-in by name, the original."""
        originals = {id(stand_in): original for original, stand_in in self._stand_ins.values()}
        for module in [name for name in list(sys.modules) if name not in self._modules]:
            space = getattr(sys.modules.get(module), "__dict__", None)
            if type(space) is dict:
                for name, value in list(space.items()):
                    if id(value) in originals:
                        space[name] = originals[id(value)]

    def _supported(self) -> None:
        sets: list[set[Any]] = [getattr(os, name, set()) for name in _SUPPORTED]
        for supported in sets:
            for original, stand_in in self._stand_ins.values():
                if original in supported:
                    self._patches.hook("os.supports", functools.partial(supported.discard, stand_in))
                    supported.add(stand_in)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._patches.restore()
        self._taken_by_name()
        self._over = True
        self._stand_ins.clear()  # which know this object: a circle would keep what is kept
        self.kept.hear()
        seen = dict(self.kept.seen)
        there = {path: os.path.lexists(path) for path in seen}
        self.paths = tuple(self._shown(path) for path, now in there.items() if now and not Path(path).is_dir())
        gone = {path for path, before in seen.items() if before and not there[path]}
        whole = [path for path in seen if path in gone and gone.isdisjoint(map(str, Path(path).parents))]
        self.deleted = tuple(map(self._shown, whole))

    @property
    def told(self) -> tuple[str, ...]:
        """Both, as a recording keeps them: a deleted file says so behind its path."""
        return (*self.paths, *(f"{path} (deleted)" for path in self.deleted))

    @property
    def notes(self) -> list[str]:
        """What the patches could not put back; a built-in that the cell replaced is a snapshot's to put back."""
        return [note for note in self._patches.notes if not note.startswith("builtins.")]

    def _around(self, reads: Reads, original: Callable[..., Any]) -> Callable[..., Any]:
        """A stand-in that has what a call touches kept before it, and listed after it."""

        def call(*args: Any, **named: Any) -> Any:
            there = self._touching(reads, args, named)
            result = original(*args, **named)
            for path, before in there:
                self.kept.note(path, before)
            if there and result is not None and not isinstance(result, int):
                self._opened(result)
            return result

        return functools.wraps(original)(call)

    def _opened(self, result: Any) -> None:
        try:
            self.kept.open.add(result)
        except TypeError:
            self.kept.open_unseen = True

    def _touching(self, reads: Reads, args: tuple[Any, ...], named: dict[str, Any]) -> list[tuple[str, bool]]:
        """Paths that a call will write, and whether something is there; what it touches is kept."""
        if self._over or getattr(self._ours, "busy", False):  # what keeps a file opens files too
            return []
        self._ours.busy = True
        try:
            found = []
            for one in _told(reads, args, named):
                path = _path(one)
                if path is not None and not self._is_left_out(path):
                    before = os.path.lexists(path)
                    self.kept.before(path, one[1])
                    if one[1] != MARKS:
                        found.append((path, before))
            return found
        finally:
            self._ours.busy = False

    def _is_left_out(self, path: str) -> bool:
        parts = Path(path).parts
        in_memory = path.startswith(_IN_MEMORY)
        if (path.startswith(_ELSEWHERE) and not in_memory) or "__pycache__" in parts or path.startswith(self._caches):
            return True
        scratch = in_memory or path.startswith(self._temporary)
        return scratch and any(part.startswith(_SCRATCH) for part in parts)

    def _shown(self, path: str) -> str:
        inside = self._folder is not None and Path(path).is_relative_to(self._folder)
        return str(Path(path).relative_to(self._folder)) if inside and self._folder is not None else path


def _told(reads: Reads, args: tuple[Any, ...], named: dict[str, Any]) -> list[Touched]:
    """What a call touches; nothing where its arguments are none that it takes: it will say so itself."""
    try:
        return list(reads(*args, **named))
    except Exception:
        return []


def _path(touched: Touched) -> str | None:
    """The absolute path; None for a buffer, or what is no path at all."""
    file, _, folder = touched
    try:
        if isinstance(file, int):
            return path_of(file) if touched[1] != MARKS else None
        path = os.fsdecode(file)
        if folder is not None and not Path(path).is_absolute():
            where = path_of(folder)
            return None if where is None else str(Path(where, path))
        return os.path.abspath(path)  # noqa: PTH100 (an absolute path without following links)
    except (TypeError, ValueError, OSError):
        return None


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # a machine with nowhere to write to
        return os.sep
