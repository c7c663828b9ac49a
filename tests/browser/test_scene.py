"""The main job, end to end: the quickstart cell under `%%gpudoctor` in a real JupyterLab, seen from the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.lab import Lab
from tests.support.live_page import PANEL
from tests.support.open_notebook import wait_until
from tests.support.quickstart_page import (
    finished,
    opened,
    pick,
    quickstart_cells,
    running,
    state,
    tried,
)
from tests.support.still import unfold

pytestmark = pytest.mark.timeout(600)


def rows(page: Page) -> int:
    """Points of the longest line in the page's data sources."""
    return int(page.evaluate(f"{PANEL}?.rows() ?? 0"))


def test_the_scene(lab: Lab, page: Page) -> None:
    """Points 1 to 5 in one visit: live panel, Stop, trials that leave no trace, a real run, reload, reopen."""
    notebook = opened(lab, page, "scene.ipynb", epochs=30)

    # 1. the panel stands above the output before the first step, the plots move while the kernel is busy, a verdict
    notebook.run_cell(3)
    page.locator("[data-gpu-doctor]").first.wait_for(timeout=30_000)
    wait_until(lambda: rows(page) > 5, 30, "No points came")
    seen = rows(page)
    assert state(page)["busy"]
    assert running(notebook)
    wait_until(lambda: rows(page) > seen + 5, 20, "The points did not grow")
    assert running(notebook)
    wait_until(lambda: "num_workers=0" in state(page)["verdict"]["text"], 60, "No verdict came")
    verdict = state(page)["verdict"]
    assert "waits for data" in verdict["text"]
    assert "%" in verdict["text"]
    assert "predicted" in verdict["advice"]["predicted"]
    assert "no GPU" in state(page)["header"]["machine"]
    assert sum(part["share"] for part in state(page)["anatomy"]["segments"]) == pytest.approx(1.0, abs=0.02)
    notebook.screenshot("scene-running")

    # 2. Stop
    page.locator("[data-ask=stop]").first.click()
    wait_until(lambda: not running(notebook), 10, "The loop did not stop")
    wait_until(lambda: finished(page), 10, "The panel did not settle")
    assert "Traceback" not in json.dumps(notebook.outputs(3))
    assert "waits for data" in state(page)["verdict"]["text"]

    # 3. trials: workers, batch size, AMP; nothing they touched has changed
    before = notebook.kernel_value("state_of_training()")
    workers = tried(page, "num_workers", "2")
    notebook.screenshot("scene-after-trial")
    assert "num_workers=2" in json.dumps(workers)
    assert "faster" in json.dumps(workers), workers
    assert notebook.kernel_value("state_of_training()") == before
    assert "batch_size=512" in json.dumps(tried(page, "batch_size", "512"))
    assert notebook.kernel_value("state_of_training()") == before
    assert "amp=bf16" in json.dumps(tried(page, "amp", "bf16"))
    assert notebook.kernel_value("state_of_training()") == before

    # 4. "code" shows the person's own line of an earlier cell, changed; a row unfolds both sides' losses
    page.locator(".gd-verdict [data-fold=code]").click()
    added = page.locator(".gd-verdict pre.gd-diff .gd-added")
    added.first.wait_for(timeout=15_000)
    assert "generator=torch.Generator()" in added.first.inner_text() and "num_workers=" in added.first.inner_text()
    page.locator("[data-fold=row]").first.click()
    detail = page.locator(".gd-detail").first
    assert "loss" in detail.locator(".gd-judged").inner_text().lower()
    assert page.evaluate("document.querySelector('.gd-detail img').naturalWidth") > 300
    assert "%" in json.dumps(workers[state(page)["table"]["head"].index("CPU")]), "the device was read in the trial"
    notebook.screenshot("scene-unfolded", of=page.locator("[data-gpu-doctor]").first)

    # 5. a page reload while the kernel lives shows the plots with their data
    notebook.save()
    points = rows(page)
    notebook.reload()
    page.locator("[data-gpu-doctor]").first.wait_for(timeout=30_000)
    wait_until(lambda: rows(page) >= min(points, 20), 30, "The reloaded page has no points")
    notebook.screenshot("scene-reloaded")

    # saved and reopened with a new kernel, the static result tells the same
    saved = lab.read("scene.ipynb").cells[3].outputs
    texts = [str(output.get("data", {}).get("text/html", "")) for output in saved]
    [static] = [text for text in texts if "gpu-doctor-static" in text]
    assert "data:image/svg+xml;base64," in static
    assert "num_workers=2" in static
    notebook.reopen()
    shown = page.locator(".gpu-doctor-static").first
    shown.wait_for(timeout=30_000)
    assert "waits for data" in shown.inner_text()
    notebook.screenshot("scene-reopened", of=shown)


def test_the_kernels_interrupt_ends_like_the_users_own(lab: Lab, page: Page) -> None:
    """The diagnosis is shown, KeyboardInterrupt passes, and 'run all' goes no further."""
    cells = [*quickstart_cells(epochs=30), "after = 'reached'"]
    lab.write("interrupt.ipynb", cells)
    notebook = lab.open(page, "interrupt.ipynb")
    notebook.run_all()
    page.locator("[data-gpu-doctor]").first.wait_for(timeout=90_000)
    wait_until(lambda: rows(page) > 5, 30, "No points came")
    notebook.interrupt()
    wait_until(lambda: not running(notebook), 15, "The cell did not end")
    outputs = notebook.outputs(3)
    assert [one["ename"] for one in outputs if one["output_type"] == "error"] == ["KeyboardInterrupt"]
    assert "gpu-doctor-static" in json.dumps(outputs)
    assert notebook.kernel_value("'after' in globals()") == "False"
    assert notebook.kernel_value("__import__('gpu_doctor').last_case().recordings[-1].outcome") == "'interrupted'"
    assert notebook.kernel_value("__import__('gpu_doctor.capture.patching').capture.patching.active()") == "()"


@pytest.mark.slow
def test_a_treatment_from_the_panel(lab: Lab, page: Page) -> None:
    """Waterfall, the cells with the change, and the same in the static result; nothing of the training is touched."""
    notebook = opened(lab, page, "treated.ipynb", epochs=1, steps=60)
    notebook.run_cell(3, wait_s=120)
    wait_until(lambda: finished(page), 20, "The panel did not settle")
    before = notebook.kernel_value("state_of_training()")
    unfold(page)
    page.locator("[data-budget=steps]").fill("25")
    page.locator("[data-ask=treat]").hover()
    wait_until(lambda: state(page)["before"], 15, "What a trial touches was not said")
    assert "(a copy of" in state(page)["before"][0]["text"]
    page.locator("[data-ask=treat]").click()
    wait_until(lambda: state(page)["status"] == "treating", 30, "The treatment did not begin")
    wait_until(lambda: finished(page) and state(page)["plan"], 180, "The treatment did not end")
    plan = state(page)["plan"]
    assert "num_workers" in plan["settings"], plan
    assert plan["steps"][0]["label"] == "as written" and plan["steps"][1]["label"].startswith("+ num_workers=")
    assert page.locator(".gd-plan .gd-added").count() >= 1
    assert notebook.kernel_value("state_of_training()") == before
    notebook.screenshot("scene-treated", of=page.locator("[data-gpu-doctor]").first)
    saved = json.dumps(notebook.outputs(3))
    assert "Treatment" in saved and "Losses of trial 1" in saved


def test_a_trial_that_raises_is_said_and_the_panel_stays_usable(lab: Lab, page: Page, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    cells = quickstart_cells(epochs=1)
    raising = f"if __import__('os').path.exists({str(broken)!r}): raise ValueError('broken now')"
    cells[3] = cells[3].replace("%%gpudoctor\n", f"%%gpudoctor --steps 40\n{raising}\n")
    lab.write("twice.ipynb", cells)
    notebook = lab.open(page, "twice.ipynb")
    for number in range(3):
        notebook.run_cell(number, wait_s=90)
    notebook.run_cell(3, wait_s=60)
    wait_until(lambda: finished(page), 20, "The panel did not settle")
    before = notebook.kernel_value("state_of_training()")
    broken.touch()
    for number in (1, 2):  # it fails, and asked again it fails again: nothing is stuck
        pick(page, "num_workers", "2")
        page.locator("[data-ask=trial]").first.click()
        wait_until(lambda rows=1 + number: len(state(page)["table"]["rows"]) == rows, 60, "No row came")  # type: ignore[misc]
        wait_until(lambda: finished(page), 20, "The panel did not settle")
    assert "broken now" in json.dumps(state(page)["table"]["rows"][-1])
    assert notebook.kernel_value("state_of_training()") == before
    broken.unlink()
    assert "num_workers=2" in json.dumps(tried(page, "num_workers", "2"))
    assert state(page)["table"]["rows"][-1][3]["tone"] != "bad"


def test_both_themes(lab: Lab, page: Page, theme: str) -> None:
    """The panel takes its ground and ink from JupyterLab; the pictures are kept to be looked at."""
    notebook = opened(lab, page, f"theme-{theme}.ipynb", epochs=1, steps=120)
    notebook.run_cell(3)
    page.locator("[data-gpu-doctor]").first.wait_for(timeout=30_000)
    wait_until(lambda: "num_workers=0" in state(page).get("verdict", {}).get("text", ""), 40, "No verdict came")
    wait_until(lambda: rows(page) > 5, 20, "No points came")
    notebook.screenshot(f"panel-{theme}-running")
    wait_until(lambda: not running(notebook), 150, "The cell did not end")
    wait_until(lambda: finished(page), 30, "The panel did not settle")
    notebook.screenshot(f"panel-{theme}", of=page.locator("[data-gpu-doctor]").first)
    ground = page.evaluate(
        """() => {
          let one = document.querySelector('[data-gpu-doctor]');
          const clear = (el) => /rgba\\(0, 0, 0, 0\\)|transparent/.test(getComputedStyle(el).backgroundColor);
          while (one && clear(one)) one = one.parentElement;
          return getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number);
        }"""
    )
    assert (sum(ground[:3]) > 600) == (theme == "light"), ground
    assert page.locator("[data-gpu-doctor] canvas").count() >= 3
    assert not [one for one in notebook.console_errors if "gpu" in one.lower() or "bokeh" in one.lower()]
