"""What the panel asks for, done where it may be done: requests come on any thread, trials run on the main one.

A click only posts. Stop acts at once (it sets a flag). Everything else waits on the kernel's own loop, so that other
cells queue behind it; there SIGINT is ignored unless its default handler is set for the duration. While another cell
keeps the loop, the panel says that the request waits, and Stop withdraws it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython import get_ipython

from gpu_doctor import formatting
from gpu_doctor.notebook.output import Captured
from gpu_doctor.notebook.real_output import as_a_terminal_shows, kept
from gpu_doctor.trials import run

if TYPE_CHECKING:
    from gpu_doctor.notebook.controller import Visit


class Errands:
    """The requests of one panel."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._busy = False
        self._waiting: list[Callable[[], None]] = []
        """The request that was posted and not begun, if any; who pops it, on whichever thread, has it."""

    def take(self, request: dict[str, Any]) -> None:
        """A validated request of the page: `ask` is stop, trial, real, treat, sweep, largest, fix or before.

        Blocks a blink.
        """
        visit = self._visit
        if request["ask"] == "stop":
            if not self._withdrawn():
                visit.stopping = self._busy
                visit.case.stop()
            return
        if request["ask"] == "fix":
            visit.folds.fix(request["settings"])
            visit.redraw()
            return
        if request["ask"] == "before":
            if not self._busy and run.running() is None:
                visit.folds.look_ahead()
                visit.redraw()
            return
        works = {
            "trial": self._trial,
            "real": self._real,
            "treat": self._treat,
            "sweep": self._sweep,
            "largest": self._largest,
        }
        work = works.get(request["ask"])
        if work is None:
            return
        if self._busy or run.running() is not None:
            visit.message = "A run is going on: wait for its end, or press Stop."
            visit.redraw()
            return
        self._post(lambda: self._do(work, request))

    def _withdrawn(self) -> bool:
        """Takes back the request that waits; false where none does."""
        try:
            self._waiting.pop()
        except IndexError:
            return False
        self._busy, self._visit.status = False, "idle"
        self._visit.message = "Withdrawn before it began."
        self._visit.redraw()
        return True

    def _post(self, work: Callable[[], None]) -> None:
        shell = get_ipython()
        loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
        if loop is None:
            self._visit.message = "There is no kernel loop to run this on: use case.trial(...) in a cell instead."
            self._visit.redraw()
            return
        self._busy, self._visit.status, self._visit.message = True, "waiting", ""
        self._waiting.append(work)  # before it is shown: a Stop may come at once
        self._visit.redraw()  # before it is posted: a free loop begins at once
        loop.add_callback(self._begin)

    def _begin(self) -> None:
        """The loop is free; what was withdrawn meanwhile is not done."""
        try:
            work = self._waiting.pop()
        except IndexError:
            return
        work()

    def _do(self, work: Callable[[dict[str, Any]], None], request: dict[str, Any]) -> None:
        """Runs on the main thread, between cells."""
        visit = self._visit
        visit.message, visit.stopping = "", False
        try:
            with _interruptible():
                work(request)
        except KeyboardInterrupt:
            visit.message = (
                "Interrupted: everything that the trial touched was put back, and what was measured is kept."
            )
        except Exception as error:
            visit.message = f"This did not work: {formatting.clean(error) or type(error).__name__}"
        finally:
            self._busy = visit.stopping = False
            visit.settle()

    def _trial(self, request: dict[str, Any]) -> None:
        self._visit.busy("trial")
        self._visit.case.trial(request.get("settings", {}), steps=int(request.get("steps") or 50))

    def _treat(self, request: dict[str, Any]) -> None:
        self._visit.busy("treating")
        plans = self._visit.case.plans
        before = len(plans)
        try:
            self._visit.case.treat(
                steps=int(request.get("steps") or 50), changes_training=bool(request.get("changes_training"))
            )
        finally:
            if len(plans) > before:  # an interrupt leaves one too
                self._visit.plan = plans[-1]

    def _sweep(self, request: dict[str, Any]) -> None:
        self._visit.busy("sweeping")
        sweeps = self._visit.case.sweeps
        before = len(sweeps)
        try:
            self._visit.case.sweep(request["grid"], steps=int(request.get("steps") or 50))
        finally:
            if len(sweeps) > before:  # an interrupt leaves one too
                self._visit.sweep = sweeps[-1]

    def _largest(self, request: dict[str, Any]) -> None:
        self._visit.busy("searching")
        self._visit.largest = self._visit.case.largest_batch()

    def _real(self, request: dict[str, Any]) -> None:
        """The whole cell once more, in the user's namespace; what it writes is shown in the panel and the result."""
        with Captured() as captured:
            error = self._visit.attempt(dict(request.get("settings", {})))
        text = as_a_terminal_shows(captured.stdout + captured.stderr)
        if error is not None:
            text += "\n" + as_a_terminal_shows(_traceback(error))
            self._visit.message = f"The run ended with {formatting.raised(error)}"
            if isinstance(error, KeyboardInterrupt):
                self._visit.message = "The run was interrupted."
        self._visit.output = kept(text, captured.outputs)


def _traceback(error: BaseException) -> str:
    shell = get_ipython()
    if shell is None:
        return str(error)
    shown = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return str(shell.InteractiveTB.stb2text(shown))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Between cells the kernel ignores SIGINT; for the duration it interrupts again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
