"""The panel as one of many things in a notebook: another panel in the page, the cells around it, their keys."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.live_page import PREPARED
from tests.support.open_notebook import Notebook, wait_until

ENDED = """
one = Dashboard(lambda: shown(recording), asked.append, knobs.KNOBS, gpus=(0,))
one.show()
one.follow(Replay(recording))
one.last()
"""
CELLS = "window.jupyterapp.shell.currentWidget.content"


def opened(lab: Lab, page: Page, name: str, panels: int) -> Notebook:
    """A notebook with so many panels, each drawn."""
    notebook = lab.open(page, lab.write(name, [PREPARED, *[ENDED] * panels]))
    for number in range(1 + panels):
        notebook.run_cell(number, wait_s=90)
    wait_until(lambda: drawn(page) == [[1, 1, 1]] * panels, 30, f"Not every plot is in its panel: {drawn(page)}")
    return notebook


def drawn(page: Page) -> list[list[int]]:
    """Figures in each plot's place, by panel."""
    found: list[list[int]] = page.evaluate(
        "[...document.querySelectorAll('[data-gpu-doctor]')].map((panel) =>"
        " [...panel.querySelectorAll('.gd-cell')].map((one) => one.querySelectorAll(':scope > .bk-Figure').length))"
    )
    return found


def test_every_panel_of_a_notebook_has_its_own_plots_and_labels(lab: Lab, page: Page) -> None:
    notebook = opened(lab, page, "three_panels.ipynb", 3)
    ids: list[str] = page.evaluate("[...document.querySelectorAll('[data-gpu-doctor] [id]')].map((one) => one.id)")
    assert len(ids) > 6 and len(set(ids)) == len(ids)
    page.locator("[data-gpu-doctor]").nth(1).get_by_text("batch size", exact=True).click()
    panels = "[...document.querySelectorAll('[data-gpu-doctor]')]"
    focused = page.evaluate(f"{panels}.findIndex((one) => one.contains(document.activeElement))")
    assert focused == 1, "a label belongs to the knob of its own panel"
    assert notebook.console_errors == []


def test_keys_in_a_list_are_the_lists_and_not_jupyters(lab: Lab, page: Page) -> None:
    """An arrow turns the knob instead of going to the next cell; a letter neither cuts a cell nor adds one."""
    notebook = opened(lab, page, "keys.ipynb", 1)
    notebook.select(1)
    knob = page.locator("[data-knob=num_workers]")
    knob.focus()
    before = around(page)
    page.keyboard.press("ArrowDown")
    assert knob.evaluate("(one) => one.value") == "1", "the knob is turned"
    for key in ("b", "x", "c", "v", "End"):
        page.keyboard.press(key)
    assert around(page) == before and page.evaluate("document.activeElement.dataset.knob") == "num_workers"
    notebook.evaluate(f"{CELLS}.model.sharedModel.setMetadata('touched', true)")
    page.keyboard.press("Control+s")
    wait_until(lambda: not notebook.evaluate(f"{CELLS}.model.dirty"), 10, "Ctrl+S was not heard beside the knob")


def around(page: Page) -> dict[str, Any]:
    """The notebook's cells and the active one."""
    found: dict[str, Any] = page.evaluate(f"({{ cells: {CELLS}.model.cells.length, active: {CELLS}.activeCellIndex }})")
    return found
