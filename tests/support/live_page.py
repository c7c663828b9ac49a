"""A panel in a JupyterLab whose cell blocks the kernel while its plots move, and what the page holds."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.open_notebook import Notebook, wait_until
from tests.support.repository import ROOT

PANEL = "document.querySelector('[data-gpu-doctor]')?.gpuDoctor"
PREPARED = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
import dataclasses
from IPython.display import HTML, display
from gpu_doctor.trials import knobs
from gpu_doctor.recording.feed import Replay
from gpu_doctor.notebook.live_view import Dashboard
from gpu_doctor.report.panel import PanelInput
from tests.support.panel_parts import shown
from tests.support.recordings import starved

recording = starved(gpu=True, steps=900)
feed = Replay(recording, 0.0)
asked = []
seen = shown(recording, status="recording", recordings=())
dashboard = Dashboard(lambda: seen, asked.append, knobs.KNOBS, gpus=(0,))
"""
BLOCKING = """
dashboard.show()
dashboard.follow(feed)
dashboard.start()
begin = time.monotonic()
while time.monotonic() - begin < 20 and not any(one["ask"] == "stop" for one in asked):
    feed.until_s = 2 * (time.monotonic() - begin)
    time.sleep(0.02)
dashboard.stop()
seen = shown(recording)
feed.until_s = None
dashboard.last()
display(HTML("<div class='gpu-doctor-static'>the static result</div>"))
"""


def rows(page: Page) -> int:
    return int(page.evaluate(f"{PANEL}?.rows() ?? -1"))


def ran(notebook: Notebook) -> bool:
    return notebook.execution_count(1) is not None


def started(lab: Lab, page: Page, name: str) -> Notebook:
    """The panel's notebook, its blocking cell just begun."""
    notebook = lab.open(page, lab.write(name, [PREPARED, BLOCKING]))
    notebook.run_cell(0, wait_s=90)
    notebook.run_cell(1)
    wait_until(lambda: rows(page) > 5, 40, "No row came to the page while the cell ran")
    return notebook


NOT_SHOWN = "no live panel here"
