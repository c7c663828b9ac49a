"""Renews the pictures of notebooks/images: `python -m tools.panel_picture`, on a machine without other work.

The quickstart in a real JupyterLab: a run, `num_workers` turned, a trial, its row and the change of the cell unfolded.
`panel.gif` is all of it, faster than it went by, `panel.png` the panel at its end.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import nbformat
from PIL import Image, ImageChops
from playwright.sync_api import Page, sync_playwright

from tests.support.lab import Lab, launch_chromium, new_page
from tests.support.open_notebook import Notebook, wait_until
from tests.support.quickstart_page import QUICKSTART, finished, pick, tried
from tests.support.stored_notebooks import INSTALL_ID

IMAGES: Final = QUICKSTART.parent / "images"
WIDTH, HEIGHT = 1000, 920
SCALE: Final = 0.8
"""Of the moving picture: it stands in a column that is about as wide."""
LEAST_S, MOST_S, LAST_S = 1.0, 4.0, 15.0
"""How long a frame stands: at least, at most where nothing moves, and the last one,"""
FASTER: Final = 3
"""before all is shown so many times as fast."""
COLOURS: Final = 128
MOST_FRAMES: Final = 45
MOST_BYTES: Final = 2_000_000


class Filmed:
    """The page as Chromium paints it, frame by frame, from `start` until `stop`."""

    def __init__(self, page: Page) -> None:
        """Films nothing yet."""
        self._page = page
        self._painted_at: list[tuple[float, bytes]] = []
        self._session = page.context.new_cdp_session(page)
        self._session.on("Page.screencastFrame", self._painted)

    def start(self) -> None:
        """From now on; seldom and in a cheap format, as the loop that is filmed needs the cores."""
        self._session.send("Page.startScreencast", {"format": "jpeg", "quality": 95, "everyNthFrame": 6})

    def stop(self) -> None:
        """Until now: how the page stands at its end is the last frame, whatever was left out before it."""
        self._session.send("Page.stopScreencast")
        self._painted_at.append((time.time(), self._page.screenshot()))

    def frames(self) -> list[tuple[float, Image.Image]]:
        """The second of each frame, and the picture."""
        return [(second, Image.open(io.BytesIO(data)).convert("RGB")) for second, data in self._painted_at]

    def _painted(self, frame: dict[str, Any]) -> None:
        self._session.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})
        second = float(frame["metadata"]["timestamp"])
        if not self._painted_at or second - self._painted_at[-1][0] >= LEAST_S:
            self._painted_at.append((second, b64decode(frame["data"])))


def moving(frames: list[tuple[float, Image.Image]], path: Path) -> None:
    """Writes the frames that differ as one picture that moves for ever.

    Raises:
        ValueError: if it is larger than a README should carry.
    """
    shown = [frames[0]]
    for second, picture in frames[1:]:
        if ImageChops.difference(picture, shown[-1][1]).getbbox():
            shown.append((second, picture))
    every = -(-len(shown) // MOST_FRAMES)
    shown = shown[::-1][::every][::-1]  # the last one among them
    size = (round(WIDTH * SCALE), round(HEIGHT * SCALE))
    small = [picture.resize(size, Image.Resampling.LANCZOS) for _, picture in shown]
    # One palette for all, so that what stands still is the same in each and costs nothing.
    palette = small[len(small) // 2].quantize(COLOURS)
    flat = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in small]
    stand = [min(MOST_S, later - earlier) for (earlier, _), (later, _) in pairwise(shown)]
    milliseconds = [round(1000 * seconds / FASTER) for seconds in (*stand, LAST_S)]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=milliseconds, loop=0, optimize=False)
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {MOST_BYTES}: {len(flat)} frames.")


def played(notebook: Notebook) -> None:
    """The scene: run, turn, try, read."""
    page = notebook.page
    page.wait_for_timeout(2000)  # the cell, to be read
    notebook.run_cell(3)
    page.locator("[data-gpu-doctor]").first.wait_for(timeout=30_000)
    page.locator("[data-gpu-doctor]").first.evaluate("(panel) => panel.scrollIntoView()")
    wait_until(lambda: finished(page), 200, "The run did not end")
    page.wait_for_timeout(1500)
    pick(page, "num_workers", "2")
    page.wait_for_timeout(1500)
    tried(page, "num_workers", "2")
    page.wait_for_timeout(2000)
    page.locator(".gd-result [data-fold=code]").click()
    page.locator(".gd-result pre.gd-diff .gd-added").first.wait_for(timeout=20_000)
    page.wait_for_timeout(1000)


def main(images: Path = IMAGES) -> None:
    """Plays the scene and writes both pictures."""
    notebook_cells = nbformat.read(QUICKSTART, as_version=4).cells
    cells = [one.source for one in notebook_cells if one.cell_type == "code" and one.id != INSTALL_ID][:4]
    with tempfile.TemporaryDirectory() as home, Lab(Path(home) / "home") as lab, sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        _, page = new_page(browser, WIDTH, HEIGHT)
        lab.write("quickstart.ipynb", cells)
        notebook = lab.open(page, "quickstart.ipynb")
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        for number in range(3):
            notebook.run_cell(number, wait_s=200)
        notebook.select(3)
        filmed = Filmed(page)
        filmed.start()
        played(notebook)
        filmed.stop()
        page.set_viewport_size({"width": 1180, "height": 1900})
        page.locator("[data-fold=row]").first.click()
        page.mouse.move(5, 5)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(800)
        page.locator("[data-gpu-doctor]").first.screenshot(path=images / "panel.png")
        browser.close()
    moving(filmed.frames(), images / "panel.gif")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
