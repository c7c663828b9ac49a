"""The panel in a real page: it moves while the cell blocks the kernel, is heard, themed, reloaded, fits its width."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from tests.support.lab import THEMES, Lab
from tests.support.live_page import PANEL, ran, started
from tests.support.open_notebook import wait_until
from tests.support.still import unfold


def measured(page: Page) -> dict[str, Any]:
    """What of the panel is out of place, how many columns its plots stand in, its ink."""
    found: dict[str, Any] = page.evaluate(
        "(() => { const root = document.querySelector('[data-gpu-doctor]');"
        " const box = root.getBoundingClientRect();"
        " const cells = [...root.querySelectorAll('.gd-cell')].map((one) => one.getBoundingClientRect());"
        " return {over: root.scrollWidth - root.clientWidth, columns: new Set(cells.map((one) => one.x)).size,"
        " drawn: root.querySelectorAll('.gd-cell > .bk-Figure').length,"
        " spill: Math.max(...cells.map((one) => one.right)) - box.right,"
        " colour: getComputedStyle(root).color}; })()"
    )
    return found


def test_the_panel_fits_every_width_in_both_themes(lab: Lab, page: Page) -> None:
    """The theme changes while the panel stands: it follows without being drawn anew."""
    notebook = started(lab, page, "view_fits.ipynb")
    page.locator("[data-gpu-doctor] [data-ask=stop]").click()
    wait_until(lambda: ran(notebook), 25, "The cell did not end")
    notebook.command("application:toggle-left-area")  # the list of files leaves nothing of 600 px
    change = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
    for theme in ("light", "dark"):
        page.evaluate(change, THEMES[theme])
        for width, columns in ((1600, 3), (1000, None), (600, 1)):
            page.set_viewport_size({"width": width, "height": 1300})
            wait_until(lambda: fits(measured(page)), 5, f"The panel does not fit {width} px: {measured(page)}")
            found = measured(page)
            assert columns in (None, found["columns"])
            light_ink = int(found["colour"].split("(")[1].split(",")[0]) > 127
            assert light_ink == (theme == "dark")
            ticks = page.evaluate(f"{PANEL}.plots.ink")
            assert ticks == found["colour"], "the plots take the theme's ink as well"
            notebook.screenshot(f"view-{theme}-{width}", page.locator("[data-gpu-doctor]").first)


def fits(found: dict[str, Any]) -> bool:
    return bool(found["over"] <= 0 and found["spill"] <= 0 and found["drawn"] == 3)


def test_knobs_are_turned_and_asked_for(lab: Lab, page: Page) -> None:
    notebook = started(lab, page, "view_knobs.ipynb")
    page.locator("[data-gpu-doctor] [data-ask=stop]").click()
    wait_until(lambda: ran(notebook), 25, "The cell did not end")
    panel = page.locator("[data-gpu-doctor]")
    assert panel.locator("[data-ask=trial]").is_disabled(), "no knob is turned yet"
    panel.locator("[data-knob=batch_size]").select_option(label="256")
    assert "changes the training" in panel.locator(".gd-changes").inner_text()
    unfold(page)
    panel.locator("[data-budget=steps]").fill("30")
    panel.locator("[data-ask=trial]").click()
    budget = {"steps": 30, "seconds": 20, "changes_training": False, "allow": ()}
    expected = {"ask": "trial", "settings": {"batch_size": 256}, **budget}
    wait_until(lambda: notebook.kernel_value(f"asked[-1] == {expected!r}") == "True", 10, "The trial was not asked for")
    panel.locator("[data-fold=code]").first.click()
    assert "num_workers=" in panel.locator(".gd-code pre").first.inner_text()
    panel.locator("[data-fold=why]").first.click()
    assert "When to leave it" in panel.locator(".gd-page").first.inner_text()
    panel.locator(".gd-line", has_text="CPU").click()
    assert panel.locator(".gd-line", has_text="CPU").get_attribute("aria-pressed") == "false"
