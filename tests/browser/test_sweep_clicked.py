"""A sweep and the search for the largest batch from the panel: in a bare page, and by clicks in a real JupyterLab."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.open_notebook import Notebook, wait_until
from tests.support.quickstart_page import finished, opened, state
from tests.support.still import asked, show, unfold
from tests.support.trial_parts import searched, swept, treated

pytestmark = pytest.mark.timeout(600)

NO_GPU = "The loop does not use a GPU"
SHELF = """
# Real trials of this loop on the CPU; only the memory that they are asked about is a card's of 4 GB.
from gpu_doctor.report.panel import panel_state
from gpu_doctor.trials import largest_batch

class Shelf:
    def __init__(self, device): pass
    def reset(self): pass
    def limit_bytes(self): return 4e9
    def peak_bytes(self):
        progress = __import__("gpu_doctor").last_case().progress
        return 0.6e9 + 4e6 * int(progress.rsplit(" ", 1)[1])

largest_batch.no_largest = panel_state.no_largest = lambda setup: ""
largest_batch.CardMemory = Shelf
"""


def tick(page: Page, *values: str) -> None:
    """Unfolds the grid and ticks values such as `num_workers=2`."""
    unfold(page)
    page.locator("[data-fold=sweep]").click()
    for value in values:
        page.locator(f"[data-tick='{value}']").click()


# ---- in a bare page -------------------------------------------------------------------------------------------------


def test_ticks_make_a_grid_and_say_what_they_change(blank: Page) -> None:
    show(blank, treated(plan=None), plots=False)
    tick(blank)
    run = blank.locator("[data-ask=sweep]")
    assert run.is_disabled() and "Tick values" in blank.locator(".gd-grid-of [role=status]").inner_text()
    for value in ("num_workers=2", "num_workers=4", "batch_size=256", "batch_size=512", "batch_size=512"):
        blank.locator(f"[data-tick='{value}']").click()
    assert "Combinations: 2," in blank.locator(".gd-grid-of [role=status]").inner_text()
    assert "batch size changes the training" in blank.locator(".gd-grid-of .gd-changes").inner_text()
    assert blank.locator("[data-tick^='prefetch_factor']").count() == 0
    blank.locator("[data-fold=sweep-more]").click()
    factor = blank.locator("[data-tick^='prefetch_factor']")
    assert factor.first.is_enabled(), "of a sweep over workers, what acts on workers can be a part"
    run.click()
    sent = asked(blank)[-1]
    assert sent["ask"] == "sweep" and sent["grid"] == {"num_workers": [2, 4], "batch_size": [256]}
    assert sent["settings"] == {} and (sent["steps"], sent["seconds"]) == (50, 20)
    assert blank.locator(".gd-grid-of").count() == 0, "folded: the header shows how far it is"


def test_a_grid_that_is_too_large_cannot_be_run(blank: Page) -> None:
    show(blank, treated(plan=None), plots=False)
    tick(
        blank,
        *(f"num_workers={n}" for n in (0, 1, 2, 4, 8, 16)),
        *(f"batch_size={n}" for n in (32, 64, 128, 256, 512, 1024)),
    )
    assert blank.locator("[data-ask=sweep]").is_disabled()
    assert "36 combinations are too many" in blank.locator(".gd-grid-of [role=status]").inner_text()


def test_results_turn_the_knobs_and_a_search_is_asked_for(blank: Page) -> None:
    show(blank, treated(plan=None, sweep=swept(), largest=searched()), plots=False)
    blank.locator(".gd-sweep .gd-link", has_text="set the knobs").click()
    assert blank.locator("[data-knob=num_workers]").evaluate("el => el.selectedOptions[0].textContent") == "2"
    blank.locator(".gd-largest .gd-link").click()
    assert blank.locator("[data-knob=batch_size]").evaluate("el => el.selectedOptions[0].textContent") == "256"
    unfold(blank)
    blank.locator("[data-ask=largest]").click()
    assert asked(blank)[-1]["ask"] == "largest"


# ---- by clicks in JupyterLab ----------------------------------------------------------------------------------------


def ready(lab: Lab, page: Page, name: str) -> tuple[Notebook, str]:
    """The quickstart after a short run, and the hash of its training's state."""
    notebook = opened(lab, page, name, epochs=1, steps=60)
    notebook.run_cell(3, wait_s=120)
    wait_until(lambda: finished(page), 20, "The panel did not settle")
    return notebook, notebook.kernel_value("state_of_training()")


@pytest.mark.slow
def test_a_sweep_from_the_panel(lab: Lab, page: Page) -> None:
    """Progress, a place for each combination, the same in the saved notebook; nothing of the training is touched."""
    notebook, before = ready(lab, page, "swept.ipynb")
    unfold(page)
    assert page.locator("[data-ask=largest]").is_disabled()
    assert NO_GPU in page.locator(".gd-choice").inner_text()
    page.locator("[data-budget=steps]").fill("20")
    tick(page, "num_workers=1", "num_workers=2")
    page.locator("[data-ask=sweep]").click()
    wait_until(lambda: state(page)["status"] == "sweeping", 30, "The sweep did not begin")
    wait_until(lambda: state(page)["header"]["progress"], 30, "No progress")
    wait_until(lambda: "running" in [one["state"] for one in state(page)["sweep"]["rows"]], 120, "Nothing ran")
    notebook.screenshot("sweep-running", of=page.locator("[data-gpu-doctor]").first)
    wait_until(lambda: finished(page) and state(page)["sweep"], 240, "The sweep did not end")
    labels = {one["setting"] for one in state(page)["sweep"]["rows"]}
    assert labels == {"as written", "num_workers=1", "num_workers=2"}
    again = " when measured again" in state(page)["sweep"]["sentence"] or "measuring it again" in str(
        state(page)["sweep"]
    )
    assert len(state(page)["table"]["rows"]) == 3 + again, "each combination has its row, and the second measurement"
    assert notebook.kernel_value("state_of_training()") == before
    notebook.screenshot("sweep", of=page.locator("[data-gpu-doctor]").first)
    assert "Sweep" in json.dumps(notebook.outputs(3)) and "num_workers=1" in json.dumps(notebook.outputs(3))


def test_the_largest_batch_from_the_panel(lab: Lab, page: Page) -> None:
    notebook, _ = ready(lab, page, "largest.ipynb")
    notebook.set_source(2, SHELF)
    notebook.run_cell(2, wait_s=60)
    before = notebook.kernel_value("state_of_training()")
    unfold(page)  # any click redraws what the kernel tells anew
    page.locator("[data-ask=treat]").hover()
    wait_until(lambda: state(page)["before"] and not state(page)["noLargest"], 20, "The panel was not told")
    page.locator("[data-ask=largest]").click()
    wait_until(lambda: state(page)["status"] == "searching", 30, "The search did not begin")
    wait_until(lambda: "a batch of" in ((state(page)["header"]["progress"] or {}).get("text", "")), 60, "No progress")
    notebook.screenshot("largest-running")
    wait_until(lambda: finished(page) and state(page)["largest"], 180, "The search did not end")
    found = state(page)["largest"]
    assert found["settings"]["batch_size"] >= 128 and "left free" in found["sentence"], found
    assert [one["said"] for one in found["sizes"] if "largest that fits" in one["said"]]
    assert notebook.kernel_value("state_of_training()") == before
    notebook.screenshot("largest", of=page.locator("[data-gpu-doctor]").first)
    assert "Largest batch" in json.dumps(notebook.outputs(3))
