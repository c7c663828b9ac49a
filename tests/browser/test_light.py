"""The panel is light and lets go: one BokehJS a page, one panel a cell; what is lost on the way is asked for once."""

from __future__ import annotations

import itertools

from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.live_page import PANEL, PREPARED, ran, rows, started
from tests.support.open_notebook import wait_until
from tests.support.repository import ROOT

LOOP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
%load_ext gpu_doctor
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
WATCHED = """%%gpudoctor
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""
UNFOUND = """
from gpu_doctor.notebook.widget import loader
one = Dashboard(lambda: shown(recording), asked.append, knobs.KNOBS, gpus=(0,))
loader({}).close()
one.show()
one.follow(Replay(recording))
one.last()
"""


def figures(page: Page) -> int:
    """Plots that are drawn."""
    return page.locator("[data-gpu-doctor] .gd-cell > .bk-Figure").count()


def test_a_cell_run_again_leaves_one_panel_and_one_document_in_the_page(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("light_again.ipynb", [LOOP, WATCHED]))
    notebook.run_cell(0, wait_s=90)
    for _ in range(4):
        notebook.run_cell(1, wait_s=60)
        wait_until(lambda: figures(page) == 3, 20, f"{figures(page)} plots")
        page.evaluate(f"window.first ??= Bokeh; (window.seen ??= []).push(new WeakRef({PANEL}.live)); 0")
    assert page.evaluate("Bokeh.documents.length") == 1
    page.wait_for_timeout(1000)
    page.context.new_cdp_session(page).send("HeapProfiler.collectGarbage")
    held = page.evaluate("seen.map((one) => one.deref() !== undefined)")
    assert held == [False, False, False, True], "panels that were replaced are held by the page"
    assert page.evaluate("Bokeh === first"), "BokehJS is evaluated once a page"
    held = "__import__('ipywidgets').widgets.widget._instances.values()"
    assert notebook.kernel_value(f"[type(one).__name__ for one in {held}].count('DoctorView')") == "1"
    assert notebook.console_errors == []


def test_a_page_that_cannot_find_what_plots_need_is_sent_it(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("light_asked.ipynb", [PREPARED, UNFOUND]))
    notebook.run_cell(0, wait_s=90)
    notebook.run_cell(1, wait_s=60)
    wait_until(lambda: figures(page) == 3, 20, "The plots did not come")
    assert rows(page) == 900
    assert notebook.kernel_value("'source' in one.view.bokeh") == "True", "it was asked for"
    assert notebook.console_errors == []


def test_messages_that_are_lost_in_a_run_are_made_up_for(lab: Lab, page: Page) -> None:
    notebook = started(lab, page, "light_lost.ipynb")
    page.evaluate(
        f"(() => {{ const {{ live }} = {PANEL}; const hear = live.receive.bind(live);"
        " window.lost = window.whole = 0;"
        " live.receive = (message, buffers) => { if (window.lost < 3) { window.lost += 1; return; }"
        " if (message.kind === 'state') window.whole += 1; hear(message, buffers); }; })()"
    )
    wait_until(lambda: page.evaluate("lost === 3 && whole"), 15, "All was not sent after messages were lost")
    assert not ran(notebook), "the answer came while the cell ran"
    times = page.evaluate(f"{PANEL}.live.points.lines.get('base:step').x")
    assert max(later - one for one, later in itertools.pairwise(times)) < 0.1, "no step is missing"
    page.locator("[data-gpu-doctor] [data-ask=stop]").click()
    wait_until(lambda: rows(page) == 900, 15, "The last rows did not come")
    assert page.evaluate("whole") == 1, "all was asked for once"
    assert notebook.console_errors == []
