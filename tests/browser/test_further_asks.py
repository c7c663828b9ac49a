"""An ideal loader and a deep look, by clicks in a real JupyterLab: drawn, kept in the file, the training untouched."""

from __future__ import annotations

import json

from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.open_notebook import wait_until
from tests.support.quickstart_page import finished, opened, state, tried
from tests.support.still import asked, show, unfold
from tests.support.trial_parts import treated


def test_an_ideal_loader_and_a_deep_look_from_the_panel(lab: Lab, page: Page) -> None:
    notebook = opened(lab, page, "further.ipynb", epochs=1, steps=80)
    notebook.run_cell(3, wait_s=120)
    wait_until(lambda: finished(page), 20, "The panel did not settle")
    before = notebook.kernel_value("state_of_training()")
    tried(page, "num_workers", "2")
    unfold(page)
    page.locator("[data-ask=ideal]").click()
    wait_until(lambda: state(page)["status"] == "trial", 30, "The trial did not begin")
    wait_until(lambda: finished(page) and state(page)["anatomy"]["ceiling"], 150, "No ceiling was measured")
    page.locator("[data-ask=look]").click()
    wait_until(lambda: state(page)["status"] == "looking", 30, "The look did not begin")
    wait_until(lambda: finished(page) and state(page)["look"], 150, "The look did not end")
    found = state(page)
    assert 0 < found["anatomy"]["ceiling"]["share"] <= 1
    assert any("ideal" in note or "any loader" in note for note in found["table"]["details"][1]["notes"])
    assert any("cell line" in one["said"] for one in found["look"]["operators"])
    notebook.screenshot("further", of=page.locator("[data-gpu-doctor]").first)
    assert notebook.kernel_value("state_of_training()") == before
    kept = json.dumps(notebook.outputs(3))
    assert "ideal loader" in kept and "torch.profiler" in kept


def test_both_are_asked_for_by_key(blank: Page) -> None:
    show(blank, treated(True, plan=None), plots=False)
    unfold(blank)
    for ask in ("ideal", "look"):
        blank.locator(f"[data-ask={ask}]").press("Enter")
        assert asked(blank)[-1]["ask"] == ask and asked(blank)[-1]["settings"] == {}
