"""A recording is played in a real page: the plots grow, trials stand there and say why not, knobs are foretold."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.live_page import PANEL, ran, rows
from tests.support.open_notebook import wait_until
from tests.support.repository import ROOT
from tests.support.still import unfold

SAVED = ROOT / "notebooks" / "recordings" / "images-on-a-cpu.npz"
PATH = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport gpu_doctor"
PLAYED = f"gpu_doctor.replay({str(SAVED)!r}, speed=5)"


def test_a_recording_is_played_and_its_knobs_are_foretold(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("replay.ipynb", [PATH, PLAYED]))
    notebook.run_cell(0, wait_s=90)
    notebook.run_cell(1)
    panel = page.locator("[data-gpu-doctor]").first
    wait_until(lambda: rows(page) > 30, 40, "No row came to the page")
    assert not ran(notebook), "it is being played"
    assert panel.locator(".gd-replay").inner_text() == "replay at 5x"
    assert "measured on a virtual machine" in panel.locator(".gd-machine").inner_text()
    notebook.screenshot("replay-while", panel)
    wait_until(lambda: ran(notebook), 60, "It did not end")
    wait_until(lambda: page.evaluate(f"{PANEL}.state().status") == "idle", 10, "The last state did not come")
    unfold(page)
    panel.locator("[data-knob=num_workers]").select_option(label="4")
    assert "predicted" in panel.locator("[data-forecast]").inner_text()
    for ask in ("trial", "treat", "largest", "try"):
        button = panel.locator(f"[data-ask={ask}]").first
        assert button.get_attribute("aria-disabled") == "true", ask
        why = page.evaluate("(id) => document.getElementById(id).innerText", button.get_attribute("aria-describedby"))
        assert why.startswith("A replay has no loop to rerun"), ask
    panel.locator("[data-fold=code]").first.click()
    wait_until(lambda: "num_workers=" in panel.locator(".gd-fix").first.inner_text(), 10, "The code was not told")
    notebook.screenshot("replay", panel)
    assert not page.locator(".gpu-doctor-static").is_visible(), "hidden while the panel stands beside it"
    assert notebook.console_errors == []
