"""The harness itself: a notebook runs, streams, is interrupted, reloaded, saved and reopened in a real JupyterLab."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.open_notebook import wait_until


def test_cells_run_and_outputs_are_read(lab: Lab, page: Page) -> None:
    name = lab.write("harness_run.ipynb", ["#md # A title", "x = 6 * 7\nprint('the answer is', x)"])
    notebook = lab.open(page, name)
    notebook.run_cell(1, wait_s=30)
    assert notebook.stream_text(1) == "the answer is 42\n"
    assert "the answer is 42" in notebook.output(1).inner_text()
    assert notebook.kernel_value("x + 1") == "43"
    assert not notebook.busy()


def test_a_busy_kernel_is_interrupted(lab: Lab, page: Page) -> None:
    cell = "import time\nfor second in range(60):\n    print('tick', second, flush=True)\n    time.sleep(0.2)"
    notebook = lab.open(page, lab.write("harness_interrupt.ipynb", [cell, "after = 1"]))
    notebook.run_cell(0)
    wait_until(lambda: "tick 2" in notebook.stream_text(0), 20, "The cell's output did not stream")
    assert notebook.busy()
    notebook.interrupt()
    notebook.wait_idle(10)
    assert notebook.outputs(0)[-1]["ename"] == "KeyboardInterrupt"


def test_reload_keeps_the_kernel_and_reopen_does_not(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("harness_reload.ipynb", ["kept = 'still here'\nkept"]))
    notebook.run_all(wait_s=30)
    notebook.save()
    assert lab.read(notebook.name).cells[0].outputs[0]["data"]["text/plain"] == "'still here'"
    notebook.reload()
    assert notebook.kernel_value("kept") == "'still here'"
    notebook.reopen()
    assert notebook.kernel_value("kept").startswith("NameError")
    assert "still here" in notebook.output(0).inner_text()


def test_the_theme_is_the_one_asked_for(lab: Lab, page: Page, theme: str) -> None:
    notebook = lab.open(page, lab.write(f"harness_{theme}.ipynb", ["1 + 1"]))
    notebook.run_all(wait_s=30)
    light = notebook.evaluate("document.body.dataset.jpThemeLight")
    assert light == ("true" if theme == "light" else "false")
    assert notebook.screenshot(f"harness-{theme}").stat().st_size > 1000
