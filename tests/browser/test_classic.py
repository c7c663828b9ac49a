"""Notebook 7 and nbclassic, for real: a cell runs, plots move, Stop or the interrupt ends it, a trial, a reload."""

from __future__ import annotations

import math

import pytest
from playwright.sync_api import Page

from gpu_doctor.notebook.live_view import GREETING_S
from tests.support.classic import PREPARED, WATCHED, Classic, Seven, static
from tests.support.lab import Lab
from tests.support.live_page import PANEL, rows
from tests.support.open_notebook import wait_until
from tests.support.repository import ARTIFACTS

GREETED = f"00:{math.ceil(GREETING_S) + 1:02}"
"""On the run's own clock: until then it is taken for granted that clicks reach the kernel."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("front_end", [Seven, Classic], ids=["notebook7", "nbclassic"])
def test_the_scene(lab: Lab, page: Page, front_end: type[Seven] | type[Classic]) -> None:
    classic = front_end is Classic
    opened = front_end(lab, page, lab.write(f"scene_{front_end.name}.ipynb", [PREPARED, WATCHED]))
    opened.run_cell(0, wait_s=60)
    opened.run_cell(1)
    wait_until(lambda: rows(page) > 5, 30, "No row came to the page while the cell ran")
    before = rows(page)
    wait_until(lambda: rows(page) > before + 20, 10, "The plots do not move")
    hint = page.locator(".gd-header .gd-hint")
    stop = page.locator("[data-gpu-doctor] [data-ask=stop]")
    if classic:
        hint.get_by_text("To stop, interrupt the kernel").wait_for(timeout=8000)
        stop.click()
        page.wait_for_timeout(1500)
        assert opened.busy(), "a click waits for the end of the cell"
        opened.interrupt()
    else:
        clock = f"{PANEL}.state().header.clock"
        wait_until(lambda: page.evaluate(clock) >= GREETED, 30, "The run's clock stands")
        wait_until(lambda: hint.count() == 0, 15, "The kernel does not know that it hears clicks")
        stop.click()
    wait_until(lambda: opened.ran(1), 15, "The cell was not stopped")
    wait_until(lambda: page.evaluate(f"{PANEL}.state().busy") is False, 10, "The panel did not hear the end")
    wait_until(lambda: static(page).count(), 10, "There is no static result")
    assert not static(page).is_visible(), "hidden while the panel stands beside it"
    if classic:
        a_long_output_leaves_the_panel_room(page)
    page.locator("[data-knob=num_workers]").select_option(label="2")
    page.locator("[data-gpu-doctor] [data-ask=trial]").click()
    wait_until(lambda: page.locator(".gd-runs tbody tr").count() > 1, 40, "The trial left no row")
    wait_until(lambda: page.evaluate(f"{PANEL}.state().busy") is False, 20, "The trial did not end")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.locator("[data-gpu-doctor]").screenshot(path=ARTIFACTS / f"scene-{front_end.name}.png")
    opened.save()
    lab.end_kernels()
    opened.reload()
    wait_until(lambda: static(page).count() and static(page).is_visible(), 20, "No static result after the reload")
    assert "num_workers=2" in static(page).inner_text()
    page.screenshot(path=ARTIFACTS / f"reopened-{front_end.name}.png")


def a_long_output_leaves_the_panel_room(page: Page) -> None:
    """nbclassic puts an output of more than 100 lines, as of a loop that prints, into a box that scrolls."""
    area = page.locator(".output_scroll:has(.gpu-doctor)")
    lines = "'line\\n'.repeat(200)"
    output = f"{{ output_type: 'stream', name: 'stdout', text: {lines} }}"
    page.evaluate(f"(Jupyter.notebook.get_cell(1).output_area.append_output({output}), 0)")
    area.wait_for(timeout=10_000)
    seen = area.evaluate("(one) => one.clientHeight / innerHeight")
    assert 0.85 < seen < 1, "the panel is seen as far as the window goes"
    page.screenshot(path=ARTIFACTS / "scrolled-nbclassic.png")
    page.evaluate("(Jupyter.notebook.get_cell(1).output_area.toggle_scroll(), 0)")
    area.wait_for(state="detached", timeout=5000)
