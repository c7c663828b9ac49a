"""The whole scene by keyboard alone, in a real JupyterLab: run, stop, knob, trial, code, treat, stop."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.test_scene import state
from tests.support.lab import Lab
from tests.support.open_notebook import Notebook, wait_until

pytestmark = pytest.mark.timeout(120)

PREPARED = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 20_000
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.zeros(8), 0

%load_ext gpu_doctor
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Rows(), batch_size=16, num_workers=0)
"""
TRAINED = """%%gpudoctor
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FOCUSED = (
    "(what) => Boolean(document.activeElement?.closest('[data-gpu-doctor]')) && document.activeElement.matches(what)"
)
MOST_STOPS = 60
"""Controls of a panel with everything folded, and what JupyterLab puts before it."""


def to(page: Page, what: str, key: str = "Tab") -> None:
    """Presses Tab, as often as it takes, until a control of the panel has the focus."""
    for _ in range(MOST_STOPS):
        if page.evaluate(FOCUSED, what):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{what} is not reached by {key}: {page.evaluate('document.activeElement.outerHTML')[:200]}")


def finished(page: Page) -> bool:
    return state(page).get("status") == "idle"


def press(page: Page, what: str, key: str = "Tab") -> None:
    to(page, what, key)
    assert page.evaluate("document.activeElement.matches(':focus-visible')"), f"where the focus is, is not seen: {what}"
    page.keyboard.press("Enter")


def begun(lab: Lab, page: Page) -> Notebook:
    """The training cell run by Ctrl+Enter; nothing is clicked from here on."""
    notebook = lab.open(page, lab.write("keyboard.ipynb", [PREPARED, TRAINED]))
    notebook.run_cell(0, wait_s=60)
    notebook.select(1)
    page.keyboard.press("Control+Enter")
    wait_until(lambda: state(page).get("status") == "recording", 40, "The run did not begin")
    return notebook


@pytest.mark.xfail(reason="JupyterLab takes the focus from the panel when the cell ends; why is not known yet")
def test_the_scene_is_played_by_keyboard_alone(lab: Lab, page: Page) -> None:
    notebook = begun(lab, page)

    # run and stop
    wait_until(lambda: state(page)["verdict"]["advice"], 40, "No verdict came")
    press(page, "[data-ask=stop]")
    wait_until(lambda: finished(page), 20, "The run did not stop")
    assert page.evaluate(FOCUSED, "[data-ask=stop]"), "the focus was lost when the run ended"

    # a knob, its forecast, a trial
    to(page, "[data-knob=num_workers]")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert "predicted" in page.locator("[data-forecast]").inner_text()
    to(page, "[data-budget=steps]")
    page.keyboard.press("Control+a")
    page.keyboard.type("15")
    press(page, "[data-ask=trial]")
    wait_until(lambda: state(page)["status"] == "trial", 20, "The trial did not begin")
    wait_until(lambda: finished(page) and len(state(page)["table"]["rows"]) == 2, 60, "The trial did not end")
    assert page.evaluate(FOCUSED, "[data-ask=trial]"), "the focus was lost while the trial ran"
    assert "num_workers=" in page.locator(".gd-runs tbody tr").nth(1).inner_text()

    # its row unfolds, and so does the change of the code
    press(page, "[data-fold=row]")
    press(page, ".gd-detail [data-fold=code]")
    added = page.locator(".gd-detail pre.gd-diff .gd-added")
    added.first.wait_for(timeout=15_000)
    assert "num_workers=" in added.first.inner_text()

    # a treatment, stopped
    press(page, "[data-ask=treat]", "Shift+Tab")
    wait_until(lambda: state(page)["status"] == "treating", 20, "The treatment did not begin")
    press(page, "[data-ask=stop]", "Shift+Tab")
    wait_until(lambda: finished(page), 30, "The treatment did not stop")
    assert page.evaluate(FOCUSED, "[data-ask=stop]"), "the focus was lost when the treatment ended"
    assert notebook.kernel_value("loader.num_workers") == "0", "nothing of the training was touched"
    notebook.screenshot("keyboard", page.locator("[data-gpu-doctor]").first)
