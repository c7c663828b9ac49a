"""Records the ranks that a diagnosed cell starts itself: each rank records itself, and the recordings are compared.

`torch.multiprocessing.spawn`, and the launchers built on it (Accelerate's `notebook_launcher`), run a function in
separate processes, which the cell's recording does not see.
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
        """Starts without ranks."""
        self._folder = ""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Makes the ranks record themselves that are started inside the context."""
        with Patches() as patches:
            for name in _HOLDERS:
                if name in sys.modules:
                    patches.wrap(sys.modules[name], "start_processes", self._starting)
            yield

    def job(self) -> Job | None:
        """Returns the job of the started ranks, or None if none was started or none left a file."""
        if not self._folder:
            return None
        try:
            return load_job(self._folder)
        except (RecordingError, OSError):
            return None

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *more: Any, **kwargs: Any) -> Any:
            folder = self._folder_for_ranks()
            return original(Recorded(fn, folder, nprocs) if folder else fn, args, nprocs, *more, **kwargs)

        return start_processes

    def _folder_for_ranks(self) -> str:
        """Returns the folder of the recordings, or '' if it cannot be made.

        It is made when the first ranks start, and removed together with this object.
        """
        if not self._folder:
            self._folder = scratch.make_folder() or ""
            weakref.finalize(self, _remove, self._folder, os.getpid())
        return self._folder


def _remove(folder: str, maker: int) -> None:
    """Removes the folder, unless this is a fork of the process that made it and still uses it."""
    if folder and os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


class Recorded:
    """A wrapper that records the loop of a function in a separate process; it can be pickled if the function can."""

    def __init__(self, function: Callable[..., Any], folder: str, processes: int) -> None:
        """Wraps a function without running it.

        Args:
            function: function of the user, whose first argument is the number of the process.
            folder: folder for the ranks' recordings.
            processes: number of processes.
        """
        self.function, self.folder, self.processes = function, folder, processes

    def __call__(self, *args: Any) -> Any:
        """Runs the function and records it if possible; its result and its exceptions stay unchanged."""
        __tracebackhide__ = True
        names = getattr(self.function, "__globals__", None)
        number = (args[0], self.processes) if args and isinstance(args[0], int) else None
        watch = Watch("rank", names, folder=Place(self.folder, number))
        with ExitStack() as stack:
            with suppress(Busy, OSError):
                stack.enter_context(watch)
            return self.function(*args)
