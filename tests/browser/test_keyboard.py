"""The whole scene by keyboard alone, in a real JupyterLab: run, stop, knob, trial, code, treat, stop."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.open_notebook import Notebook, wait_until
from tests.support.quickstart_page import finished, state

pytestmark = pytest.mark.timeout(600)

PREPARED = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 40_000
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
    "(what) => document.activeElement?.closest('[data-gpu-doctor]') ? document.activeElement.matches(what) : false"
)
MOST_STOPS = 60
"""Controls of a panel with little unfolded, and what JupyterLab puts before it."""


def focused(page: Page, what: str) -> bool:
    return bool(page.evaluate(FOCUSED, what))


def to(page: Page, what: str, key: str = "Tab") -> None:
    """Presses Tab, as often as it takes, until a control of the panel has the focus."""
    assert page.locator(f"[data-gpu-doctor] {what}").count(), f"the panel has no {what}"
    for _ in range(MOST_STOPS):
        if focused(page, what):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{what} is not reached by {key}: {page.evaluate('document.activeElement.outerHTML')[:200]}")


def press(page: Page, what: str, key: str = "Tab") -> None:
    to(page, what, key)
    assert page.evaluate("document.activeElement.matches(':focus-visible')"), f"where the focus is, is not seen: {what}"
    page.keyboard.press("Enter")


def begun(lab: Lab, page: Page, name: str, keys: str) -> Notebook:
    """The training cell run by its keys; nothing is clicked from here on."""
    notebook = lab.open(page, lab.write(name, [PREPARED, TRAINED, "after = 1"]))
    notebook.run_cell(0, wait_s=180)
    notebook.select(1)
    notebook.evaluate("window.jupyterapp.shell.currentWidget.content.activate()")
    page.keyboard.press(keys)
    wait_until(lambda: state(page).get("status") == "recording", 120, "The run did not begin")
    return notebook


def test_the_scene_is_played_by_keyboard_alone(lab: Lab, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook = begun(lab, page, "keyboard.ipynb", "Control+Enter")

    # run and stop
    wait_until(lambda: state(page)["verdict"]["advice"], 120, "No verdict came")
    press(page, "[data-ask=stop]")
    wait_until(lambda: finished(page), 60, "The run did not stop")
    notebook.wait_idle(30)
    assert focused(page, "[data-ask=stop]"), "the focus was lost when the run ended"

    # a knob, its forecast, a shorter trial
    to(page, "[data-knob=num_workers]")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert "predicted" in page.locator("[data-forecast]").inner_text()
    press(page, "[data-fold=more]")
    to(page, "[data-budget=steps]")
    page.keyboard.press("Control+a")
    page.keyboard.type("15")
    press(page, "[data-ask=trial]", "Shift+Tab")
    wait_until(lambda: state(page)["status"] == "trial", 60, "The trial did not begin")
    wait_until(lambda: finished(page) and len(state(page)["table"]["rows"]) == 2, 240, "The trial did not end")
    assert focused(page, "[data-ask=trial]"), "the focus was lost while the trial ran"
    assert "num_workers=2" in page.locator(".gd-runs tbody tr").nth(1).inner_text()

    # its row unfolds, and so does the change of the code, which is copied
    press(page, ".gd-runs [data-fold=row]")
    press(page, ".gd-detail [data-fold=code]")
    page.locator(".gd-detail .gd-fixhead").wait_for(timeout=20_000)
    press(page, ".gd-detail .gd-fixhead button:not(.gd-toggle)")
    wait_until(lambda: "copied" in page.locator(".gd-detail .gd-fixhead").inner_text(), 10, "It was not copied")
    assert "num_workers=2" in page.evaluate("navigator.clipboard.readText()")
    assert focused(page, ".gd-fixhead button"), "the focus was lost when it was copied"

    # as written again: the button goes with what it undoes, the focus stays beside it
    press(page, "[data-reset]", "Shift+Tab")
    assert focused(page, "[data-ask=trial]") and not page.locator("[data-reset]").count()

    # a treatment, stopped
    press(page, "[data-ask=treat]")
    wait_until(lambda: state(page)["status"] == "treating", 60, "The treatment did not begin")
    press(page, "[data-ask=stop]", "Shift+Tab")
    wait_until(lambda: finished(page), 120, "The treatment did not stop")
    assert focused(page, "[data-ask=stop]"), "the focus was lost when the treatment ended"
    assert notebook.kernel_value("loader.num_workers") == "0", "nothing of the training was touched"
    assert notebook.execution_count(2) is None, "no key ran another cell"
    notebook.screenshot("keyboard", page.locator("[data-gpu-doctor]").first)


def test_after_shift_enter_the_panel_is_reached_backwards(lab: Lab, page: Page) -> None:
    """Shift+Enter goes on to the next cell, as everywhere in JupyterLab; the end of the run takes no focus from it."""
    notebook = begun(lab, page, "backwards.ipynb", "Shift+Enter")
    assert page.evaluate("document.activeElement === document.querySelectorAll('.jp-Notebook-cell')[2]")
    wait_until(lambda: state(page)["verdict"]["advice"], 120, "No verdict came")
    press(page, "[data-ask=stop]", "Shift+Tab")
    wait_until(lambda: finished(page), 60, "The run did not stop")
    assert focused(page, "[data-ask=stop]"), "the focus was lost when the run ended"
    assert notebook.execution_count(2) is None
