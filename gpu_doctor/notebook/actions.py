"""What the panel asks for, done where it may be done: requests come on any thread, trials run on the main one.

A click only posts. Stop acts at once (it sets a flag). Everything else waits on the kernel's own loop, so that other
cells queue behind it; there SIGINT is ignored unless its default handler is set for the duration. While another cell
keeps the loop, the panel says that the request waits, and Stop withdraws it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from IPython import get_ipython

from gpu_doctor import formatting
from gpu_doctor.capture import running
from gpu_doctor.notebook.details import Details
from gpu_doctor.report.panel import Status
from gpu_doctor.trials import Case
from gpu_doctor.trials.knobs import IDEAL_LOADER


class Panel(Protocol):
    """What the requests of a panel act on."""

    case: Case
    details: Details
    stopping: bool
    status: Status
    message: str

    def busy(self, status: Status) -> None:
        """Shows that something runs."""

    def redraw(self) -> None:
        """Shows what has changed."""

    def settle(self) -> None:
        """Shows that nothing runs any more."""


class Actions:
    """The requests of one panel."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._busy = False
        self._waiting: list[Callable[[], None]] = []
        """The request that was posted and not begun, if any; who pops it, on whichever thread, has it."""

    def take(self, request: dict[str, Any]) -> None:
        """A validated request of the page: `ask` is one of `Asked`.

        Blocks a blink.
        """
        panel = self._panel
        if request["ask"] == "stop":
            if not self.withdraw():
                panel.stopping = self._busy
                panel.case.stop()
            return
        if request["ask"] in ("fix", "forecast"):
            unfold = panel.details.fix if request["ask"] == "fix" else panel.details.foretell
            unfold(request["settings"])
            panel.redraw()
            return
        if request["ask"] == "before":
            self._look_ahead_when_free()
            return
        works = {
            "trial": self._trial,
            "treat": self._treat,
            "sweep": self._sweep,
            "largest": self._largest,
            "ideal": self._ideal,
            "look": self._look,
        }
        work = works.get(request["ask"])
        if work is None:
            return
        if self._busy or running() is not None:
            panel.message = "A run is going on: wait for its end, or press Stop."
            panel.redraw()
            return
        self._post(lambda: self._do(work, request))

    def _look_ahead_when_free(self) -> None:
        """Looks what a trial would touch, between cells: a cell that runs changes the namespace that is walked."""
        loop = _kernel_loop()
        if loop is None:  # no other cell can run meanwhile
            self._look_ahead()
        else:
            loop.add_callback(self._look_ahead)

    def _look_ahead(self) -> None:
        if not self._busy and running() is None:
            self._panel.details.look_ahead()
            self._panel.redraw()

    def withdraw(self) -> bool:
        """Takes back the request that waits; false where none does."""
        try:
            self._waiting.pop()
        except IndexError:
            return False
        self._busy, self._panel.status = False, "idle"
        self._panel.message = "The request was cancelled before it began."
        self._panel.redraw()
        return True

    def _post(self, work: Callable[[], None]) -> None:
        loop = _kernel_loop()
        if loop is None:
            self._panel.message = "The kernel has no event loop for this button: use case.trial(...) in a cell."
            self._panel.redraw()
            return
        self._busy, self._panel.status, self._panel.message = True, "waiting", ""
        self._waiting.append(work)  # before it is shown: a Stop may come at once
        self._panel.redraw()  # before it is posted: a free loop begins at once
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
        panel = self._panel
        panel.message, panel.stopping = "", False
        try:
            with _interruptible():
                work(request)
            if panel.case.reached:  # what only a side has shown needs a box to tick, too
                panel.details.look_ahead()
        except KeyboardInterrupt:
            panel.message = "Interrupted: the state before the trial is restored, and the measurements are kept."
        except Exception as error:
            panel.message = f"This did not work: {formatting.clean(error) or type(error).__name__}"
        finally:
            self._busy = panel.stopping = False
            panel.settle()

    def _trial(self, request: dict[str, Any]) -> None:
        self._panel.busy("trial")
        self._panel.case.trial(request.get("settings", {}), **_budget(request))

    def _treat(self, request: dict[str, Any]) -> None:
        self._panel.busy("treating")
        self._panel.case.treat(changes_training=bool(request.get("changes_training")), **_budget(request))

    def _sweep(self, request: dict[str, Any]) -> None:
        self._panel.busy("sweeping")
        self._panel.case.sweep(request["grid"], **_budget(request))

    def _largest(self, request: dict[str, Any]) -> None:
        self._panel.busy("searching")
        self._panel.case.largest_batch(allow=request.get("allow", ()))

    def _ideal(self, request: dict[str, Any]) -> None:
        self._panel.busy("trial")
        self._panel.case.trial(IDEAL_LOADER, **_budget(request))

    def _look(self, request: dict[str, Any]) -> None:
        self._panel.busy("looking")
        self._panel.case.look(allow=request.get("allow", ()))


def _budget(request: dict[str, Any]) -> dict[str, Any]:
    """Steps, seconds and permissions of a trial that the page asks for; None = the case's own."""
    return {"steps": request.get("steps"), "seconds": request.get("seconds"), "allow": request.get("allow", ())}


def _kernel_loop() -> Any | None:
    """The loop on which the kernel runs cells one by one; None where there is no kernel."""
    return getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Between cells the kernel ignores SIGINT; for the duration it interrupts again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
