"""The ranks that a diagnosed cell starts by itself: each records itself, and their recordings are read side by side.

`torch.multiprocessing.spawn`, and the launchers that stand on it (Accelerate's `notebook_launcher`), run a function in
processes of their own, which the cell's recording does not see.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from gpu_doctor.capture import Busy, Patches
from gpu_doctor.job import Job, Place, load_job
from gpu_doctor.recording import RecordingError
from gpu_doctor.trials.side_effects import scratch
from gpu_doctor.trials.watch import Watch

_HOLDERS: Final = ("torch.multiprocessing", "torch.multiprocessing.spawn")
"""Modules of torch in which launchers find `start_processes`."""


class Ranks:
    """The ranks of one run of a cell."""

    def __init__(self) -> None:
        """None was started."""
        self._folder = ""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Around the run: whatever is started meanwhile records itself."""
        with Patches() as patches:
            for name in _HOLDERS:
                if name in sys.modules:
                    patches.wrap(sys.modules[name], "start_processes", self._starting)
            yield

    def job(self) -> Job | None:
        """The ranks side by side; None where none was started, or none left anything."""
        if not self._folder:
            return None
        try:
            return load_job(self._folder)
        except (RecordingError, OSError):
            return None

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *more: Any, **kwargs: Any) -> Any:
            folder = self._made()
            return original(Recorded(fn, folder, nprocs) if folder else fn, args, nprocs, *more, **kwargs)

        return start_processes

    def _made(self) -> str:
        """The folder, made when the first ranks start, and removed when nobody holds the ranks any more; '' without."""
        if not self._folder:
            self._folder = scratch.made() or ""
            weakref.finalize(self, _remove, self._folder, os.getpid())
        return self._folder


def _remove(folder: str, maker: int) -> None:
    """Removes the folder, unless this is a fork of the process that made it and still uses it."""
    if folder and os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


class Recorded:
    """A function that runs in a process of its own and records its loop there; it can be pickled if that one can."""

    def __init__(self, function: Callable[..., Any], folder: str, processes: int) -> None:
        """Nothing is run yet.

        Args:
            function: of the user; its first argument is the number of the process.
            folder: where the ranks leave their recordings.
            processes: how many are started.
        """
        self.function, self.folder, self.processes = function, folder, processes

    def __call__(self, *args: Any) -> Any:
        """Runs the function, recorded where that can be; its result and its exceptions are untouched."""
        __tracebackhide__ = True
        names = getattr(self.function, "__globals__", None)
        number = (args[0], self.processes) if args and isinstance(args[0], int) else None
        watch = Watch("rank", names, folder=Place(self.folder, number))
        with ExitStack() as stack:
            with suppress(Busy, OSError):
                stack.enter_context(watch)
            return self.function(*args)
