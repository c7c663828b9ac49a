"""The panel in a bare page: a kernel that does not hear, a person's numbers, motion, and names for what is drawn."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.still import resize, show, unfold
from tests.support.trial_parts import effects, treated, trials


def test_a_click_that_the_kernel_does_not_hear_is_said_so(blank: Page) -> None:
    errors = show(blank, shown(starved()))
    blank.locator("[data-ask=treat]").click()
    hint = blank.locator(".gd-hint")
    hint.wait_for(timeout=6000)
    assert "the kernel is busy" in hint.inner_text()
    blank.evaluate("window.tell({ status: 'recording', busy: true })")
    hint.wait_for(state="detached", timeout=3000)
    assert errors == []


def test_a_panel_whose_kernel_is_gone_says_what_to_do(blank: Page) -> None:
    """ipywidgets throws for a kernel that was restarted."""
    errors = show(blank, shown(starved()))
    blank.evaluate("(() => { window.asked.push = () => { throw new Error('Cannot send'); }; })()")
    blank.locator("[data-ask=treat]").click()
    assert "kernel that ran this cell is gone" in blank.locator(".gd-header").inner_text()
    assert errors == []


@pytest.mark.parametrize(("typed", "asked"), [("", 50), ("0", 50), ("-3", 50), ("30", 30), ("9999999", 100000)])
def test_the_steps_that_a_trial_takes_are_those_that_stand_there(blank: Page, typed: str, asked: int) -> None:
    show(blank, shown(starved()), plots=False)
    unfold(blank)
    steps = blank.locator("[data-budget=steps]")
    steps.fill(typed)
    blank.locator("[data-ask=treat]").click()
    assert blank.evaluate("window.asked.at(-1).steps") == asked
    assert steps.input_value() == str(asked)


@pytest.mark.parametrize(("typed", "asked"), [("", 20), ("0", 20), ("7.5", 7.5), ("120", 120), ("99999", 3600)])
def test_the_seconds_that_a_trial_measures_are_those_that_stand_there(blank: Page, typed: str, asked: float) -> None:
    show(blank, shown(starved()), plots=False)
    unfold(blank)
    seconds = blank.get_by_label("seconds of a trial")
    seconds.fill(typed)
    blank.locator("[data-ask=treat]").click()
    assert blank.evaluate("window.asked.at(-1).seconds") == asked
    assert seconds.input_value() == str(asked)


def test_the_budget_of_the_cells_line_stands_there_and_is_reached_by_the_keyboard(blank: Page) -> None:
    show(blank, shown(starved(), trial_steps=200, trial_seconds=20.0), plots=False)
    unfold(blank)
    steps, seconds = (blank.locator(f"[data-budget={name}]") for name in ("steps", "seconds"))
    assert (steps.input_value(), seconds.input_value()) == ("200", "20")
    steps.focus()
    blank.keyboard.press("Tab")
    assert blank.evaluate("document.activeElement.dataset.budget") == "seconds"
    blank.keyboard.press("Control+a")
    blank.keyboard.type("45")
    blank.evaluate("window.tell({ status: 'idle' })")  # a redraw leaves what is typed
    assert seconds.input_value() == "45"
    assert seconds.get_attribute("aria-description"), "what they are of is read out"


def test_plots_and_controls_have_names(blank: Page) -> None:
    show(blank, treated())
    blank.locator("[data-fold=more]").click()
    names = [one.get_attribute("aria-label") for one in blank.locator(".gd-cell").all()]
    assert names[1] == "memory in GiB over seconds; the figures are above"
    unnamed = blank.evaluate(
        "[...document.querySelectorAll('[data-gpu-doctor] :is(button, select, input)')].filter((one) =>"
        " !one.textContent.trim() && !one.ariaLabel && !one.labels?.length).length"
    )
    assert unnamed == 0


def test_a_long_name_and_a_failed_run_leave_the_header_whole(blank: Page) -> None:
    failed = starved(outcome="failed", reason="ValueError: " + "seven " * 40)
    show(blank, shown(failed, name="resnet with a very long name of its own, " * 3))
    for width in (600, 1300):
        resize(blank, width)
        assert blank.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert blank.locator(".gd-broken").count() == 1
    assert blank.locator(".gd-header").inner_text().count("failed") == 1


def test_thirty_trials_leave_the_findings_in_reach(blank: Page) -> None:
    """The table scrolls under its head, and a new row comes into sight."""
    ten = effects(trials()) * 4
    show(blank, treated(effects=ten[:10], trials=()), plots=False)
    assert blank.locator(".gd-many").count() == 0
    row = blank.evaluate("document.querySelector('[data-gpu-doctor]').gpuDoctor.state().table.rows.at(-1)")
    head = "document.querySelector('[data-gpu-doctor]').gpuDoctor.state().table.head"
    blank.evaluate(
        f"(row) => window.tell({{ table: {{ head: {head}, rows: Array(31).fill(row), details: [] }} }})", row
    )
    assert blank.locator(".gd-runs").evaluate("(one) => one.offsetHeight") < 420
    seen = "(one) => [one.querySelector('th').getBoundingClientRect().top - one.getBoundingClientRect().top, "
    seen += "one.scrollHeight - one.clientHeight - one.scrollTop]"
    head_top, below = blank.locator(".gd-many").evaluate(seen)
    assert abs(head_top) <= 1 and abs(below) <= 1
