"""The quickstart in a JupyterLab: its cells, what the panel shows of it, a knob turned and tried."""

from __future__ import annotations

from typing import Any

import nbformat
from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.live_page import PANEL
from tests.support.open_notebook import Notebook, wait_until
from tests.support.repository import ROOT

QUICKSTART = ROOT / "notebooks" / "01_quickstart.ipynb"
INSTALL = "install"
"""The id of the cell that installs the package, elsewhere."""
STATE_OF_TRAINING = """
def state_of_training():
    import hashlib, json, random
    import numpy as np
    tensors = [*model.state_dict().values()]
    tensors += [value for one in optimizer.state.values() for value in one.values()]
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes())
    digest.update(loader.generator.get_state().numpy().tobytes())
    digest.update(repr(random.getstate()).encode())
    digest.update(np.random.get_state()[1].tobytes())
    names = sorted(name for name in globals() if not name.startswith("_"))
    digest.update(json.dumps(names).encode())
    digest.update(repr((loader.num_workers, loader.batch_size, running_loss, epoch, step)).encode())
    return digest.hexdigest()
"""


def quickstart_cells(epochs: int = 2) -> list[str]:
    """The quickstart up to its training cell, with a generator in the loader that a trial must restore."""
    notebook = nbformat.read(QUICKSTART, as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.id != INSTALL]
    cells = code[:4]
    assert cells[3].startswith("%%gpudoctor\n")
    cells[1] = cells[1].replace("num_workers=0", "num_workers=0, generator=torch.Generator().manual_seed(3)")
    assert "generator" in cells[1]
    cells[1] += "\n" + STATE_OF_TRAINING
    cells[3] = cells[3].replace("range(2)", f"range({epochs})")
    return cells


def opened(lab: Lab, page: Page, name: str, epochs: int = 2, steps: int | None = None) -> Notebook:
    """The scene's notebook with everything before the training cell run; `steps` ends the cell's loop early."""
    cells = quickstart_cells(epochs)
    if steps is not None:
        cells[3] = cells[3].replace("%%gpudoctor\n", f"%%gpudoctor --steps {steps}\n")
    lab.write(name, cells)
    notebook = lab.open(page, name)
    for number in range(3):
        notebook.run_cell(number, wait_s=90)
    return notebook


def state(page: Page) -> dict[str, Any]:
    """What the panel shows, as the page holds it."""
    found: dict[str, Any] = page.evaluate(f"{PANEL}?.state() ?? {{}}")
    return found


def running(notebook: Notebook) -> bool:
    """Whether the training cell has not returned yet (`[*]`); the kernel's own status also counts clicks."""
    return notebook.execution_count(3) is None


def finished(page: Page) -> bool:
    return state(page).get("status") == "idle"


def pick(page: Page, knob: str, label: str) -> None:
    """Turns a knob in the page."""
    select = page.locator(f"[data-knob={knob}]").first
    value = select.evaluate(
        "(el, label) => [...el.options].find((one) => one.textContent.startsWith(label) && !one.disabled)?.value", label
    )
    assert value is not None, f"{knob} offers no {label}"
    select.select_option(value)


def tried(page: Page, knob: str, label: str) -> dict[str, Any]:
    """Picks a value, reruns as a trial, waits; the table's newest row."""
    before = len(state(page)["table"]["rows"])
    pick(page, knob, label)
    page.locator("[data-ask=trial]").first.click()
    wait_until(lambda: state(page)["status"] == "trial", 30, "The trial did not begin")
    wait_until(lambda: finished(page) and len(state(page)["table"]["rows"]) > before, 150, "The trial did not end")
    newest: dict[str, Any] = state(page)["table"]["rows"][-1]
    page.get_by_role("button", name="as written").first.click()
    return newest
