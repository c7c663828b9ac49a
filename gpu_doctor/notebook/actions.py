"""Carries out the panel's requests: they arrive on any thread, but trials must run on the main thread.

A click only posts a request. Stop acts at once (it sets a flag). Everything else is queued on the kernel's own event
loop, so that other cells queue behind it. Between cells the kernel ignores SIGINT, so the default handler is set for
the duration. While another cell occupies the loop, the panel says that the request waits, and Stop withdraws it.
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
    """The panel that requests act on, as far as this module uses it."""

    case: Case
    details: Details
    stopping: bool
    status: Status
    message: str

    def busy(self, status: Status) -> None:
        """Shows that a trial or a treatment runs."""

    def redraw(self) -> None:
        """Draws the panel's changes."""

    def settle(self) -> None:
        """Shows that nothing runs any more, and the result."""


class Actions:
    """The requests of one panel."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._busy = False
        self._waiting: list[Callable[[], None]] = []
        """The request that was posted but has not begun, if any. The thread that pops it runs it or withdraws it."""

    def take(self, request: dict[str, Any]) -> None:
        """Carries out a request of the page, or queues it if it reruns the cell. Returns within milliseconds.

        Args:
            request: checked request; its `ask` is one of `contract.RequestKind`.
        """
        panel = self._panel
        if request["ask"] == "stop":
            if not self.withdraw():
                panel.stopping = self._busy
                panel.case.stop()
            return
        if request["ask"] in ("fix", "forecast"):
            unfold = panel.details.fix if request["ask"] == "fix" else panel.details.request_forecast
            unfold(request["settings"])
            panel.redraw()
            return
        if request["ask"] == "before":
            self._preview_when_free()
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
            panel.message = "A run is in progress: wait until it ends, or press Stop."
            panel.redraw()
            return
        self._post(lambda: self._run_request(work, request))

    def _preview_when_free(self) -> None:
        """Lists what a trial would touch, once no cell runs: a running cell changes the namespace that is walked."""
        loop = _kernel_loop()
        if loop is None:  # no other cell can run at the same time
            self._preview()
        else:
            loop.add_callback(self._preview)

    def _preview(self) -> None:
        if not self._busy and running() is None:
            self._panel.details.preview()
            self._panel.redraw()

    def withdraw(self) -> bool:
        """Withdraws the waiting request; returns False if none waits."""
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
        self._waiting.append(work)  # before the redraw: a Stop may follow at once
        self._panel.redraw()  # before posting: a free loop begins at once
        loop.add_callback(self._begin)

    def _begin(self) -> None:
        """Runs the waiting request, called once the loop is free; does nothing if it was withdrawn."""
        try:
            work = self._waiting.pop()
        except IndexError:
            return
        work()

    def _run_request(self, work: Callable[[dict[str, Any]], None], request: dict[str, Any]) -> None:
        """Runs a request on the main thread, between cells."""
        panel = self._panel
        panel.message, panel.stopping = "", False
        try:
            with _interruptible():
                work(request)
            if panel.case.reached:  # a refusal that only a side revealed needs its checkbox, too
                panel.details.preview()
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
    """Returns the steps, seconds and permissions of a requested trial; None stands for the case's own."""
    return {"steps": request.get("steps"), "seconds": request.get("seconds"), "allow": request.get("allow", ())}


def _kernel_loop() -> Any | None:
    """Returns the event loop on which the kernel runs cells one by one, or None if there is no kernel."""
    return getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Restores Python's own SIGINT handler for the duration, because the kernel ignores SIGINT between cells."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
