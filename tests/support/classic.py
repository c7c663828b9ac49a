"""Notebook 7 and nbclassic in Chromium: the same server as JupyterLab's, their own pages and their own commands. And
Notebook 6.5, on a server and a kernel with Colab's versions."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from playwright.sync_api import Locator, Page

from tests.support.lab import Lab
from tests.support.open_notebook import wait_until
from tests.support.repository import ROOT
from tests.support.session_kernel import session_python


class Classic:
    """One notebook open in nbclassic, driven through `Jupyter.notebook`, which its page exposes."""

    name: Final = "nbclassic"
    _PAGES: ClassVar = "/nbclassic/notebooks"

    def __init__(self, lab: Lab, page: Page, name: str) -> None:
        self.lab, self.page, self.notebook = lab, page, name
        self.page.goto(f"{lab.url}{self._PAGES}/{name}?token={lab.token}")
        self._wait_ready()

    def _wait_ready(self) -> None:
        self.page.wait_for_function(
            "window.Jupyter?.notebook?.kernel?.is_connected() && Jupyter.notebook._fully_loaded", timeout=60_000
        )
        wait_until(lambda: not self.busy(), 60, "The kernel is not idle")

    def run_cell(self, index: int, wait_s: float | None = None) -> None:
        """Starts a cell; with `wait_s` waits for its end."""
        self.page.evaluate(f"(Jupyter.notebook.select({index}), Jupyter.notebook.execute_cell(), 0)")
        if wait_s is not None:
            wait_until(lambda: self.ran(index), wait_s, f"Cell {index} did not end")

    def ran(self, index: int) -> bool:
        """The cell has ended."""
        return (
            bool(self.page.evaluate(f"Number.isInteger(Jupyter.notebook.get_cell({index}).input_prompt_number)"))
            and not self.busy()
        )

    def busy(self) -> bool:
        """The page shows the kernel as busy."""
        return bool(self.page.evaluate("Jupyter.notebook.kernel_busy"))

    def interrupt(self) -> None:
        """As the toolbar's square does."""
        self.page.evaluate("(Jupyter.notebook.kernel.interrupt(), 0)")

    def save(self) -> None:
        """Saves the notebook to disk."""
        self.page.evaluate("Jupyter.notebook.save_notebook()")

    def reload(self) -> None:
        """Reloads the page."""
        self.page.goto(f"{self.lab.url}{self._PAGES}/{self.notebook}")
        self._wait_ready()


class OldLab(Lab):
    """The server of Notebook 6.5 in the environment with Colab's versions, with their front ends of widgets."""

    def _command(self, port: int) -> list[str]:
        command = [
            str(session_python()),
            "-m",
            "notebook",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={port}",
        ]
        command += ["--NotebookApp.port_retries=0", f"--NotebookApp.token={self.token}", f"--notebook-dir={self.root}"]
        return command + self._policed("NotebookApp")


class Six(Classic):
    """One notebook open in Notebook 6.5."""

    _PAGES: ClassVar = "/notebooks"


class Seven:
    """One notebook open in Notebook 7, driven through JupyterLab's commands, which its page exposes as well."""

    name: Final = "notebook"
    _WIDGET: Final = "window.jupyterapp?.shell?.currentWidget"

    def __init__(self, lab: Lab, page: Page, name: str) -> None:
        self.lab, self.page, self.notebook = lab, page, name
        self.page.goto(f"{lab.url}/notebooks/{name}?token={lab.token}")
        self._wait_ready()

    def _wait_ready(self) -> None:
        self.page.wait_for_function(
            f"{self._WIDGET}?.sessionContext?.session?.kernel?.status === 'idle' && !!{self._WIDGET}.content.model",
            timeout=60_000,
        )

    def _command(self, name: str, wait: bool = False) -> Any:
        call = f"window.jupyterapp.commands.execute({json.dumps(name)})"
        return self.page.evaluate(call if wait else f"void {call}")

    def run_cell(self, index: int, wait_s: float | None = None) -> None:
        """Starts a cell; with `wait_s` waits for its end."""
        self.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {index}; 0")
        self._command("notebook:run-cell")
        if wait_s is not None:
            wait_until(lambda: self.ran(index), wait_s, f"Cell {index} did not end")

    def ran(self, index: int) -> bool:
        """The cell has ended."""
        count = f"{self._WIDGET}.content.model.cells.get({index}).executionCount"
        return bool(self.page.evaluate(f"{count} !== null && {count} !== undefined")) and not self.busy()

    def busy(self) -> bool:
        """The page shows the kernel as busy."""
        return bool(self.page.evaluate(f"{self._WIDGET}.sessionContext.session.kernel.status !== 'idle'"))

    def interrupt(self) -> None:
        """As the toolbar's square does."""
        self._command("notebook:interrupt-kernel")

    def save(self) -> None:
        """Saves the notebook to disk."""
        self._command("docmanager:save", wait=True)

    def reload(self) -> None:
        """Reloads the page."""
        self.page.goto(f"{self.lab.url}/notebooks/{self.notebook}")
        self._wait_ready()


def static(page: Page) -> Locator:
    """The static result in the page."""
    return page.locator(".gpu-doctor-static").first


PREPARED = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import time, torch
from torch.utils.data import DataLoader, Dataset
%load_ext gpu_doctor
class Slow(Dataset):
    def __len__(self): return 30000
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(8)
loader = DataLoader(Slow(), batch_size=8, num_workers=0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
WATCHED = """%%gpudoctor --trial-steps 20 --trial-seconds 4
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""
