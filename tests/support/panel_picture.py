"""Renews notebooks/images/panel.png: `python -m tests.support.panel_picture`, on a machine that does nothing else.

The quickstart in a real JupyterLab: a run, a trial of two workers, its row and the change of the cell unfolded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.test_scene import QUICKSTART, finished, quickstart_cells, tried
from tests.support.lab import Lab, launch_chromium, new_page
from tests.support.open_notebook import wait_until

PICTURE = QUICKSTART.parent / "images" / "panel.png"


def main(picture: Path = PICTURE) -> None:
    """Runs the scene and writes the picture."""
    cells = quickstart_cells()
    with tempfile.TemporaryDirectory() as home, Lab(Path(home) / "home") as lab, sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        _, page = new_page(browser, 1180, 1900)
        lab.write("quickstart.ipynb", cells)
        notebook = lab.open(page, "quickstart.ipynb")
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        for number in range(4):
            notebook.run_cell(number, wait_s=200)
        wait_until(lambda: finished(page), 30, "The panel did not settle")
        tried(page, "num_workers", "2")
        page.locator(".gd-verdict [data-fold=code]").click()
        page.locator(".gd-verdict pre.gd-diff .gd-added").first.wait_for(timeout=20_000)
        page.locator("[data-fold=row]").first.click()
        page.mouse.move(5, 5)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(800)
        page.locator("[data-gpu-doctor]").first.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
