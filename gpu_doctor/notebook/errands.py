"""What the panel asks for, done where it may be done: requests come on any thread, trials run on the main one.

A click only posts. Stop acts at once (it sets a flag). Everything else waits on the kernel's own loop, so that other
cells queue behind it; there SIGINT is ignored unless its default handler is set for the duration.
"""

from __future__ import annotations

import html
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from IPython import get_ipython
from IPython.display import display
from IPython.utils.capture import capture_output

from gpu_doctor import trial, wording
from gpu_doctor.notebook.answers import Shown

if TYPE_CHECKING:
    from gpu_doctor.notebook.visit import Visit

MOST_OUTPUT: Final = 20_000
"""Characters of a real run's output that are shown."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")


class Errands:
    """The requests of one panel."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._busy = False

    def take(self, request: dict[str, Any]) -> None:
        """A validated request of the page: `ask` is stop, trial, real or treat. Never blocks."""
        visit = self._visit
        if request["ask"] == "stop":
            visit.case.stop()
            return
        work = {"trial": self._trial, "real": self._real, "treat": self._treat}.get(request["ask"])
        if work is None:
            return
        if self._busy or trial.running() is not None:
            visit.message = "A run is going on: wait for its end, or press Stop."
            visit.redraw()
            return
        self._busy = True
        self._post(lambda: self._do(work, request))

    def _post(self, work: Callable[[], None]) -> None:
        shell = get_ipython()
        loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
        if loop is None:
            self._busy = False
            self._visit.message = "There is no kernel loop to run this on: use case.trial(...) in a cell instead."
            self._visit.redraw()
            return
        loop.add_callback(work)

    def _do(self, work: Callable[[dict[str, Any]], None], request: dict[str, Any]) -> None:
        """Runs on the main thread, between cells."""
        visit = self._visit
        visit.message = ""
        try:
            with _interruptible():
                work(request)
        except KeyboardInterrupt:
            visit.message = "Interrupted: everything that the trial touched was put back."
        except Exception as error:
            visit.message = f"This did not work: {error}"
        finally:
            self._busy = False
            visit.settle()

    def _trial(self, request: dict[str, Any]) -> None:
        self._visit.busy("trial")
        self._visit.case.trial(request.get("settings", {}), steps=int(request.get("steps") or 50))

    def _treat(self, request: dict[str, Any]) -> None:
        self._visit.busy("treating")
        plan = self._visit.case.treat(
            steps=int(request.get("steps") or 50), changes_training=bool(request.get("changes_training"))
        )
        found = ", ".join(f"{name}={value}" for name, value in plan.settings.items())
        by_hand = f" By hand: {plan.by_hand[0]}" if plan.by_hand else ""
        if not plan.effects and plan.reason:
            self._visit.message = f"Nothing was tried: {plan.reason}"
        elif found:
            self._visit.message = f"Best safe settings: {found}, {plan.speedup:.2f}x, verified.{by_hand}"
        else:
            trials = wording.count(len(plan.effects), "trial")
            self._visit.message = f"No safe setting gained 3 % or more in {trials}.{by_hand}"

    def _real(self, request: dict[str, Any]) -> None:
        """The whole cell once more, in the user's namespace; what it writes goes to an output of its own."""
        output = display(Shown("", "<span></span>"), display_id=True)
        with capture_output() as captured:
            error = self._visit.attempt(dict(request.get("settings", {})))
        text = captured.stdout + captured.stderr
        if error is not None:
            text += "\n" + _traceback(error)
            self._visit.message = f"The run ended with {type(error).__name__}: {error}"
        if output is not None and text.strip():
            shown = text[-MOST_OUTPUT:]
            output.update(Shown(shown, f"<pre>{html.escape(shown)}</pre>"))
        for rich in captured.outputs:
            rich.display()


def _traceback(error: BaseException) -> str:
    shell = get_ipython()
    if shell is None:
        return str(error)
    shown = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return _ANSI.sub("", shell.InteractiveTB.stb2text(shown))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Between cells the kernel ignores SIGINT; for the duration it interrupts again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
