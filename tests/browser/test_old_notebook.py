"""The quickstart in Notebook 6.5 with Colab's versions, in a real page: ipywidgets 7.7.1 and anywidget 0.9.21 have
their front ends there. Of Colab's own page nothing is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page

from tests.support.classic import OldLab, Six, static
from tests.support.lab import Lab, new_page
from tests.support.live_page import NOT_SHOWN, PANEL, rows
from tests.support.open_notebook import wait_until
from tests.support.repository import ARTIFACTS, ROOT

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def old_page(browser: Browser) -> Iterator[Page]:
    context, page = new_page(browser)
    yield page
    context.close()


def cells() -> list[str]:
    """The quickstart's code, up to the cell that is watched; its loop goes on until it is interrupted."""
    read = nbformat.read(ROOT / "notebooks" / "01_quickstart.ipynb", as_version=4)
    code = [cell.source for cell in read.cells if cell.cell_type == "code"]
    watched = next(index for index, source in enumerate(code) if source.startswith("%%gpudoctor"))
    return [*code[:watched], code[watched].replace("range(2)", "range(100)")]


def opened(lab: Lab, page: Page, sources: list[str]) -> Six:
    """A notebook of which all cells but the last have run."""
    notebook = Six(lab, page, lab.write("old.ipynb", sources))
    for index in range(len(sources) - 1):
        notebook.run_cell(index, wait_s=120)
    return notebook


def test_the_quickstart_in_a_page(old_page: Page, tmp_path: Path) -> None:
    sources, page = cells(), old_page
    last = len(sources) - 1
    with OldLab(tmp_path / "home", 180) as lab:
        notebook = opened(lab, page, sources)
        notebook.run_cell(last)
        wait_until(lambda: rows(page) > 5, 60, "No row came to the page while the cell ran")
        before = rows(page)
        wait_until(lambda: rows(page) > before + 20, 30, "The plots do not move")
        assert page.locator(".gd-cell > .bk-Figure").count() == 3, "the loader was found while the cell ran"
        hint = page.locator(".gd-header .gd-hint")
        hint.get_by_text("To stop, interrupt the kernel").wait_for(timeout=20_000)
        notebook.interrupt()
        wait_until(lambda: notebook.ran(last), 60, "The cell was not stopped")
        wait_until(lambda: page.evaluate(f"{PANEL}.state().busy") is False, 30, "The panel did not hear the end")
        wait_until(lambda: static(page).count(), 30, "There is no static result")
        assert not static(page).is_visible(), "hidden while the panel stands beside it"
        page.locator("[data-knob=num_workers]").select_option(label="2")
        page.locator("[data-gpu-doctor] [data-ask=trial]").click()
        wait_until(lambda: page.evaluate(f"{PANEL}.state().table.rows.length") == 2, 120, "The trial left no row")
        wait_until(lambda: page.evaluate(f"{PANEL}.state().busy") is False, 60, "The trial did not end")
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        page.set_viewport_size({"width": 1280, "height": 2600})
        page.locator("[data-gpu-doctor]").screenshot(path=ARTIFACTS / "old-notebook.png")
        lab.end_kernels()


def test_a_page_whose_policy_blocks_the_panels_script(old_page: Page, tmp_path: Path) -> None:
    sources, page = cells(), old_page
    sources[-1] = sources[-1].replace("%%gpudoctor", "%%gpudoctor --steps 100")
    with OldLab(tmp_path / "home", 180, policy="script-src 'self' 'unsafe-inline' 'unsafe-eval'") as lab:
        notebook = opened(lab, page, sources)
        notebook.run_cell(len(sources) - 1, wait_s=120)
        wait_until(lambda: static(page).count() and static(page).is_visible(), 30, "No static result")
        assert page.locator("[data-gpu-doctor]").count() == 0
        place = page.locator(".jupyter-widgets-view")
        assert NOT_SHOWN in place.evaluate("(one) => getComputedStyle(one, '::after').content")
        place.scroll_into_view_if_needed()
        page.screenshot(path=ARTIFACTS / "old-notebook-blocked.png")
        lab.end_kernels()
