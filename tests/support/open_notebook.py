"""One notebook open in a Chromium page, driven the way a person drives it.

Cells are run through JupyterLab's own commands (the page exposes its application object), so a busy kernel, a reload
or an interrupt are the ones that users meet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from playwright.sync_api import ConsoleMessage, Locator, Page

from tests.support.repository import ARTIFACTS

if TYPE_CHECKING:
    from tests.support.lab import Lab

"""Where screenshots go; git ignores it."""

_NOTEBOOK: Final = "window.jupyterapp.shell.currentWidget"
_KERNEL: Final = f"{_NOTEBOOK}?.sessionContext?.session?.kernel"


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str, every_s: float = 0.1) -> Any:
    """Polls `condition` until it is true and returns its value.

    Raises:
        TimeoutError: with `what` in the message, when `timeout_s` seconds have passed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s.")
        time.sleep(every_s)


class Notebook:
    """One notebook open in a page. Cell numbers count from 0 and include markdown cells."""

    def __init__(self, lab: Lab, page: Page, name: str) -> None:
        """Not loaded yet: `Lab.open` does that."""
        self.lab = lab
        self.page = page
        self.name = name
        self.console_errors: list[str] = []
        """What the page logged as errors, uncaught exceptions included, since it was opened."""
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))

    # opening, reloading, saving

    def load(self, timeout_s: float = 90.0) -> None:
        """Loads the page (`?reset` leaves no layout of an earlier page) and waits for an idle kernel."""
        self.page.goto(f"{self.lab.url}/lab/tree/{self.name}?reset&token={self.lab.token}")
        self._wait_ready(timeout_s)

    def reload(self, timeout_s: float = 90.0, idle: bool = True) -> None:
        """Reloads the page as F5 does; the kernel lives on. `idle=False` does not wait for the kernel."""
        self.page.goto(f"{self.lab.url}/lab/tree/{self.name}?reset")
        self._wait_ready(timeout_s, idle)

    def save(self) -> None:
        """Saves the notebook to disk, and returns when it is written."""
        self.command("docmanager:save")
        wait_until(lambda: not self.evaluate(f"{_NOTEBOOK}.context.model.dirty"), 20, "The notebook was not saved")

    def reopen(self, timeout_s: float = 90.0) -> None:
        """Closes and opens the saved notebook; the old kernel is shut down in between."""
        self.page.goto("about:blank")
        self.lab.end_kernels()
        self.load(timeout_s)

    # running

    def run_cell(self, index: int, wait_s: float | None = None) -> None:
        """Starts cell `index`; with `wait_s` waits until the kernel is idle again, at most that many seconds."""
        before = self.execution_count(index)
        self.select(index)
        self._start("notebook:run-cell")
        if wait_s is not None:
            self.wait_ran(index, before, wait_s)

    def run_all(self, wait_s: float | None = None) -> None:
        """Starts every cell; with `wait_s` waits until the kernel is idle again, at most that many seconds."""
        self._start("notebook:run-all-cells")
        if wait_s is not None:
            self.page.wait_for_timeout(300)
            self.wait_idle(wait_s)

    def wait_ran(self, index: int, before: int | None, timeout_s: float) -> None:
        """Waits until cell `index` has got another execution count than `before` and the kernel is idle."""
        wait_until(lambda: self.execution_count(index) not in (before, None), timeout_s, f"Cell {index} did not end")
        self.wait_idle(timeout_s)

    def select(self, index: int) -> None:
        """Makes cell `index` the active one and scrolls to it."""
        self.evaluate(
            f"(() => {{ const c = {_NOTEBOOK}.content; c.deselectAll(); c.activeCellIndex = {index}; "
            f"return c.scrollToItem ? c.scrollToItem({index}, 'smart').catch(() => null) : null; }})()"
        )

    def set_source(self, index: int, text: str) -> None:
        """Replaces the text of cell `index`."""
        self.evaluate(f"{_NOTEBOOK}.content.model.cells.get({index}).sharedModel.setSource({json.dumps(text)})")

    def execution_count(self, index: int) -> int | None:
        """The number in cell `index`'s brackets, None while it runs or was never run."""
        count: int | None = self.evaluate(f"{_NOTEBOOK}.content.model.cells.get({index}).executionCount ?? null")
        return count

    def busy(self) -> bool:
        """True while the page shows the kernel as busy."""
        return bool(self.evaluate(f"{_KERNEL}?.status") == "busy")

    def wait_idle(self, timeout_s: float) -> None:
        """Waits until the kernel is idle, twice in a row 200 ms apart (there is a gap between two queued cells)."""

        def settled() -> bool:
            if self.evaluate(f"{_KERNEL}?.status") != "idle":
                return False
            self.page.wait_for_timeout(200)
            return bool(self.evaluate(f"{_KERNEL}?.status") == "idle")

        wait_until(settled, timeout_s, "The kernel is not idle")

    def interrupt(self) -> None:
        """Interrupts the kernel as the toolbar's square does."""
        self._start("notebook:interrupt-kernel")

    def kernel_value(self, expression: str, timeout_s: float = 20.0) -> str:
        """`repr` of a Python expression in the idle kernel, evaluated silently: no cell, no output, no history.

        An expression that raises gives `NameError: ...` and the like. Fails after `timeout_s` without a reply.
        """
        script = (
            f"(async () => {{ const future = {_KERNEL}.requestExecute({{code: '', silent: true, store_history: false, "
            f"user_expressions: {{value: {json.dumps(expression)}}}}}); "
            f"const late = new Promise((_, no) => setTimeout(() => no(Error('no reply')), {timeout_s * 1000:.0f})); "
            "const found = (await Promise.race([future.done, late])).content.user_expressions.value; "
            "return found.status === 'ok' ? found.data['text/plain'] : `${found.ename}: ${found.evalue}`; })()"
        )
        return str(self.evaluate(script))

    # looking

    def cell(self, index: int) -> Locator:
        """Cell `index` in the page."""
        return self.page.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}']").first

    def output(self, index: int) -> Locator:
        """The output area of cell `index`."""
        return self.cell(index).locator(".jp-Cell-outputArea").first

    def outputs(self, index: int) -> list[Any]:
        """The outputs of cell `index` as the page's model holds them (nbformat dictionaries)."""
        found: list[Any] = self.evaluate(f"{_NOTEBOOK}.content.model.cells.get({index}).sharedModel.getOutputs()")
        return found

    def stream_text(self, index: int, stream: str = "stdout") -> str:
        """All that cell `index` wrote to `stdout` or `stderr`."""
        parts = [out["text"] for out in self.outputs(index) if out.get("name") == stream]
        return "".join("".join(part) if isinstance(part, list) else part for part in parts)

    def evaluate(self, script: str) -> Any:
        """Value of a JavaScript expression in the page (a promise is awaited)."""
        return self.page.evaluate(script)

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Runs one of JupyterLab's commands and waits for it."""
        return self.evaluate(f"window.jupyterapp.commands.execute({json.dumps(name)}, {json.dumps(arguments or {})})")

    def screenshot(self, name: str, of: Locator | None = None) -> Path:
        """Writes `tests/artifacts/<name>.png` of the page, or of one element, and returns its path."""
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        (of or self.page).screenshot(path=path)
        return path

    def _start(self, name: str) -> None:
        """Runs a command without waiting for what it starts (a cell may run for minutes)."""
        self.evaluate(f"void window.jupyterapp.commands.execute({json.dumps(name)})")

    def _wait_ready(self, timeout_s: float, idle: bool = True) -> None:
        in_front = f"window.jupyterapp && {_NOTEBOOK}?.context?.path === {json.dumps(self.name)} && {_NOTEBOOK}.content"
        self.page.wait_for_function(f"!!({in_front}?.model)", timeout=timeout_s * 1000)
        self.page.wait_for_function(f"!!({_KERNEL})", timeout=timeout_s * 1000)
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=timeout_s * 1000)
        if idle:
            self.wait_idle(timeout_s)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(message.text)
