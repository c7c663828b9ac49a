"""Redirects a side's changes of files into a scratch folder: the user's own files are read and never written to.

Python's file functions (`open`, `os`, and all that call them: pathlib, shutil, numpy, pandas, PIL) are patched, under
every name that a module or the notebook has for them, and so are the functions of torch, safetensors, SQLite, HDF5 and
others that open a file in C. Threads from before the side are not redirected; processes that the side forks or spawns
are. Caches of libraries are left alone, and files of `tempfile` get a folder of the side.

Not seen: files that other libraries open in C, and what programs do that a cell starts.
"""

from __future__ import annotations

import functools
import inspect
import logging
import multiprocessing.process
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.capture import Patches, RunEnded
from gpu_doctor.trials.side_effects import file_functions, opened_in_c, scratch
from gpu_doctor.trials.side_effects.arrivals import told_of_arrivals
from gpu_doctor.trials.side_effects.caches import caches
from gpu_doctor.trials.side_effects.class_stand_in import class_stand_in
from gpu_doctor.trials.side_effects.overlay import CannotCopy, Overlay

_BELOW: Final = ("os", "io", "_io", "posix", "nt", "builtins", "gpu_doctor", "posixpath", "ntpath")
"""Modules that are not searched for other names of a function: its own module, Python's imports, and ours."""
_SUPPORTED: Final = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
"""Sets of functions in `os` in which shutil looks up what it may call."""


class Redirection:
    """Context manager around one side, whose threads and processes write to a scratch folder; removed at the end."""

    def __init__(self, namespace: dict[str, Any] | None = None, root: str | None = None) -> None:
        """Prepares to redirect a side.

        Args:
            namespace: namespace of the code, which may include file functions.
            root: scratch folder of a side that began in another process; None for a new folder.
        """
        self.refusal = ""
        """Reason why the side cannot begin or was ended; empty if neither."""
        self.notes: list[str] = []
        """Sentences on what could not be restored."""
        self._namespace = namespace if namespace is not None else {}
        self._begun_elsewhere = root is not None
        self._root = root or scratch.make_folder()
        self._patches = Patches()
        self._process = os.getpid()
        self._others: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        """Threads that do not belong to the side."""
        self._busy = threading.local()
        self._stand_ins: dict[int, tuple[Any, Any]] = {}
        """id of an original -> the original and its stand-in."""
        self._modules = frozenset(sys.modules)
        self._over = False
        """Replaces a stand-in by its original in every place that still has it."""
        if self._root is None:
            self.refusal = "There is no folder for temporary files, in which a trial could write: set TMPDIR to one."
        else:
            overlay = Overlay(self._root)
            temporary = os.path.join(self._root, "temporary")  # noqa: PTH118
            left_alone = (self._root + os.sep, *caches(_temporary_folder(), file_functions.working_folder()))
            self._files = file_functions.Files(overlay, left_alone, temporary)

    def __enter__(self) -> Redirection:
        if self._root is None:
            return self
        if not self._begun_elsewhere:
            Path(self._files.temporary).mkdir()
            # A thread that Python did not start, such as autograd's for a device, works for whoever computes.
            others = (thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread))
            self._others.update(thread for thread in others if thread is not threading.current_thread())
        try:
            self._patch_all()
        except RunEnded:  # the side is refused
            self._patches.restore()
        except BaseException:  # after an interrupt here, `__exit__` is not called
            self._patches.restore()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over = True
        self._patches.restore()
        self._taken_by_name()
        self._stand_ins.clear()
        # A snapshot puts back a built-in that the cell replaced.
        self.notes += [note for note in self._patches.notes if not note.startswith("builtins.")]
        if self._root is not None and os.getpid() == self._process:
            shutil.rmtree(self._root, ignore_errors=True)

    # ---- whose call it is -----------------------------------------------------------------------------------------

    def _is_sides(self) -> bool:
        """True if this thread, or the process that it forked, belongs to the side."""
        if self._over or getattr(self._busy, "now", False):
            return False
        if threading.current_thread() in self._others and not getattr(self._busy, "lent", False):
            return False
        return os.getpid() == self._process or threading.main_thread() not in self._others

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks our own work on files, which is not redirected."""
        before, self._busy.now = getattr(self._busy, "now", False), True
        try:
            yield
        except CannotCopy as too_large:
            self.refuse(str(too_large))
        finally:
            self._busy.now = before

    def refuse(self, why: str) -> None:
        """Ends the side.

        Raises:
            RunEnded: in the side's own process.
            OSError: in a process that the side started.
        """
        if os.getpid() != self._process or self._begun_elsewhere:
            raise OSError(why)
        self.refusal = self.refusal or why
        raise RunEnded("refused")

    # ---- patches --------------------------------------------------------------------------------------------------

    def _patch_all(self) -> None:
        for owner, name, make in file_functions.of_python():
            self._wrap(owner, name, make)
        for name in self._of_accessor():  # Python 3.10's pathlib keeps references of its own
            self._patches.wrap(pathlib._NormalAccessor, name, lambda old: self._stand_ins.get(id(old), (0, old))[1])  # type: ignore[attr-defined]
        self._patches.wrap(shutil, "_use_fd_functions", lambda value: False)  # a folder's descriptor leads to one place
        if hasattr(shutil, "_winapi"):  # it copies in C
            self._patches.wrap(shutil, "_winapi", _without_copying)
        self._patches.wrap(tempfile, "_sanitize_params", self._named_by_tempfile)
        self._defaults_of_tempfile()
        self._patches.wrap(logging.Handler, "handle", self._muted)
        self._patches.wrap(threading.Thread, "start", self._started)
        self._patches.wrap(ThreadPoolExecutor, "submit", self._submitted)
        self._patches.wrap(multiprocessing.process.BaseProcess, "start", self._spawned)
        self._libraries()
        self._supported()
        told_of_arrivals(lambda module: self._libraries(), opened_in_c.modules().__contains__, self._patches)

    def _of_accessor(self) -> list[str]:
        accessor = getattr(pathlib, "_NormalAccessor", None)
        return (
            [name for name, value in vars(accessor).items() if id(_plain(value)) in self._stand_ins] if accessor else []
        )

    def _wrap(self, owner: Any, name: str, make: Callable[..., Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        known = self._stand_ins.get(id(original))
        stand_in = known[1] if known is not None else self._stand_in(owner, name, original, make)
        self._stand_ins[id(original)] = original, stand_in
        self._patches.wrap(owner, name, lambda value: stand_in)

    def _stand_in(self, owner: Any, name: str, original: Any, make: Callable[..., Callable[..., Any]]) -> Any:
        if isinstance(original, type):
            ours = weakref.ref(self)  # a class is a reference cycle that would keep this object alive

            def around(function: Callable[..., Any]) -> Callable[..., Any]:
                side = ours()
                return function if side is None else side._around(function, make)

            with suppress(TypeError):  # a class in C that cannot be derived from
                return class_stand_in(original, around)
        stand_in = functools.wraps(original)(self._around(original, make))
        if isinstance(owner, type) and not isinstance(inspect.getattr_static(owner, name), staticmethod):
            return stand_in
        # Static like the original: a class that has `open` as an attribute must not bind it.
        return staticmethod(stand_in)

    def _around(self, original: Callable[..., Any], make: Callable[..., Callable[..., Any]]) -> Callable[..., Any]:
        """Returns a function that calls `make`'s replacement in the side, and the original elsewhere."""
        elsewhere = make(original, self)

        def call(*args: Any, **named: Any) -> Any:
            return elsewhere(*args, **named) if self._is_sides() else original(*args, **named)

        return call

    def redirected(self, path: Any, use: str) -> Any:
        """Returns the redirected path; bytes for bytes."""
        with self.busy():
            place = self._files.opened(path, use)
        return path if place is None else place

    @property
    def files(self) -> file_functions.Files:
        """Map of the side's paths to the paths used instead."""
        return self._files

    def _libraries(self) -> None:
        """Wraps the functions of the libraries loaded so far."""
        wrapped = {id(stand_in) for _, stand_in in self._stand_ins.values()}
        for opener in opened_in_c.OPENERS:
            there = opened_in_c.found(f"{opener.module}:{opener.name}")
            if there is not None and id(getattr(*there)) not in wrapped:
                self._wrap_library(*there, functools.partial(_opening, opener))
        for owner, name, full in opened_in_c.refused():
            if id(getattr(owner, name)) not in wrapped:
                self._wrap_library(owner, name, functools.partial(_refusing, full))
        self._by_other_names()

    def _wrap_library(self, owner: Any, name: str, make: Callable[..., Callable[..., Any]]) -> None:
        try:
            self._wrap(owner, name, make)
        except (AttributeError, TypeError) as error:
            self.refuse(
                f"What {getattr(owner, '__name__', owner)}.{name} writes cannot be kept apart from your files "
                f"({formatting.clean(error, 80)}): a trial needs another version of that library."
            )

    def _by_other_names(self) -> None:
        """Puts the stand-ins in place of originals that a module or the notebook has under other names."""
        stand_ins = self._stand_ins
        modules = [(name, getattr(module, "__dict__", None)) for name, module in list(sys.modules.items())]
        for module, space in (*modules, ("the notebook", self._namespace)):
            if type(space) is not dict or module in _BELOW or module.startswith("gpu_doctor."):
                continue
            # Most modules have none: a check without a Python loop, as there are some 100 000 values.
            if not stand_ins.keys().isdisjoint(map(id, list(space.values()))):
                for name in [name for name, value in list(space.items()) if id(value) in stand_ins]:
                    self._named(space, name, stand_ins[id(space[name])][1], module)
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
        """Gives modules that were loaded meanwhile, and imported a stand-in, the original."""
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
            for original, stand_in in list(self._stand_ins.values()):
                if isinstance(original, type(os.stat)) and original in supported:
                    self._patches.hook("os.supports", functools.partial(supported.discard, stand_in))
                    supported.add(stand_in)

    # ---- what is no file's function -------------------------------------------------------------------------------

    def _named_by_tempfile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Puts the side's temporary files into the scratch folder, with which they are removed."""

        def params(prefix: Any, suffix: Any, dir: Any) -> Any:
            if dir is None and self._is_sides() and not self._files.outlives(prefix):
                dir = os.fsencode(self._files.temporary) if isinstance(prefix or suffix, bytes) else None
                dir = dir or self._files.temporary
            return original(prefix, suffix, dir)

        return params

    def _defaults_of_tempfile(self) -> None:
        """Replaces `os.unlink` where tempfile has it as the default of an argument."""
        closer: Any = getattr(tempfile, "_TemporaryFileCloser", None)
        for function in vars(closer).values() if closer is not None else ():
            before = getattr(function, "__defaults__", None)
            if before and any(id(default) in self._stand_ins for default in before):
                self._patches.hook("tempfile", functools.partial(setattr, function, "__defaults__", before))
                function.__defaults__ = tuple(self._stand_ins.get(id(default), (0, default))[1] for default in before)

    def _muted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Keeps log records of the side from handlers that were there before."""
        before = {ref() for ref in list(getattr(logging, "_handlerList", ()))}

        def handle(handler: Any, record: Any) -> Any:
            return False if handler in before and self._is_sides() else original(handler, record)

        return functools.wraps(original)(handle)

    def _started(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a thread that the side starts belong to the side."""

        def start(thread: threading.Thread) -> None:
            if threading.current_thread() in self._others:
                self._others.add(thread)
            original(thread)

        return functools.wraps(original)(start)

    def _submitted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Makes work that the side submits to a thread pool belong to the side, whoever owns the pool."""

        def lent(work: Callable[..., Any], *args: Any, **named: Any) -> Any:
            self._busy.lent = True
            try:
                return work(*args, **named)
            finally:
                self._busy.lent = False

        def submit(pool: Any, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
            given = functools.partial(lent, work) if self._is_sides() else work
            return original(pool, given, *args, **named)

        return functools.wraps(original)(submit)

    def _spawned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Tells a spawned process of the side through its target; a forked one knows already."""

        def start(process: Any) -> None:
            target = getattr(process, "_target", None)
            if target is None or not self._is_sides():
                original(process)
                return
            process._target = Joining(target, str(self._root))
            try:
                original(process)
            finally:
                process._target = target

        return functools.wraps(original)(start)


class Joining:
    """Target of a new process: unpickling it makes the process join the side before its arguments are unpickled."""

    def __init__(self, target: Callable[..., Any], root: str) -> None:
        self._target, self._root = target, root

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the target."""
        return self._target(*args, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return _joined, (self._root, self._target)


def _joined(root: str, target: Callable[..., Any]) -> Callable[..., Any]:
    Redirection(root=root).__enter__()  # as long as the process lives
    return target


def _opening(opener: opened_in_c.Opener, original: Callable[..., Any], side: Redirection) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        args, named = opener.redirected(args, named, side.redirected)
        given = original(*args, **named)
        return opened_in_c.without_attaching(given, side.refuse) if opener.module == "sqlite3" else given

    return call


def _refusing(full: str, original: Callable[..., Any], side: Redirection) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        if opened_in_c.writes(full, args, named):
            side.refuse(opened_in_c.why_refused((full,)))
        return original(*args, **named)

    return call


def _without_copying(api: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**{name: value for name, value in vars(api).items() if name != "CopyFile2"})


def _plain(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod) else value


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # nothing on this machine is writable
        return os.sep
