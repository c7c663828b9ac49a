"""The panel in a bare page: what was opened stays open, code is code, nothing is left behind."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.still import show
from tests.support.trial_parts import treated


def test_findings_stay_open_when_their_order_changes(blank: Page) -> None:
    errors = show(blank, treated())
    blank.locator(".gd-findings > details > summary").first.click()
    tell = """(order) => {
      const [first] = document.querySelector('[data-gpu-doctor]').gpuDoctor.state().findings;
      window.tell({ findings: order.map((rule) => (rule === first.rule ? first : { ...first, rule })) });
    }"""
    named = blank.locator(".gd-findings > details > summary > b")
    for order in (["other", "loader-without-workers", "third"], ["third", "loader-without-workers"]):
        blank.evaluate(tell, order)
        assert named.all_inner_texts() == order
        opened = blank.locator(".gd-findings > details[open] > summary > b").all_inner_texts()
        assert opened == ["loader-without-workers"]
    assert errors == []


def test_a_message_moves_no_focus(blank: Page) -> None:
    show(blank, treated())
    blank.locator(".gd-verdict [data-ask=try]").focus()
    assert not blank.locator(".gd-message").is_visible()
    blank.evaluate("window.tell({ message: 'A run is going on.' })")
    assert blank.locator(".gd-message").inner_text() == "A run is going on."
    assert blank.evaluate("document.activeElement.dataset.ask") == "try"


def test_names_between_backticks_are_code_and_a_lone_one_stays(blank: Page) -> None:
    show(blank, treated())
    blank.locator(".gd-verdict [data-fold=why]").click()
    page = blank.locator(".gd-verdict .gd-page")
    assert page.locator("code").first.inner_text() == "num_workers=0" and "`" not in page.inner_text()
    verdict = "document.querySelector('[data-gpu-doctor]').gpuDoctor.state().verdict"
    blank.evaluate(f"window.tell({{ verdict: {{ ...{verdict}, text: 'Of `x` a lone ` stays.' }} }})")
    assert blank.locator(".gd-text").inner_text() == "Of x a lone ` stays."


def test_nothing_listens_or_draws_after_the_panel_has_gone(blank: Page) -> None:
    errors = show(blank, treated())
    before = blank.evaluate("window.listeningBefore")
    assert blank.evaluate("window.listening()") > before
    blank.evaluate("window.later = []; window.setTimeout = (call) => window.later.push(call); 0")
    blank.locator(".gd-verdict [data-fold=code]").click()  # wants to draw once more when the kernel has not answered
    assert blank.evaluate("window.later.length") >= 1
    blank.evaluate("window.dispose()")
    assert blank.evaluate("window.listening()") == before
    assert blank.locator("[data-gpu-doctor]").count() == 0, "the page keeps the place, nothing of ours in it"
    blank.evaluate("window.tell({ message: 'Too late.' })")
    blank.evaluate("window.later.forEach((call) => call())")
    assert blank.locator("[data-gpu-doctor], .gd-cell canvas").count() == 0
    assert "Too late." not in blank.locator("body").inner_text()
    assert errors == []


def test_without_bokeh_the_panel_says_so_and_the_rest_works(blank: Page) -> None:
    blank.add_init_script("Object.defineProperty(window, 'Bokeh', { get: () => undefined, set: () => {} })")
    show(blank, shown(starved()), plots=False)
    blank.get_by_text("The plots could not be drawn").wait_for(timeout=10_000)
    assert "The run is not affected." in blank.locator(".gd-key").inner_text()
    assert "waits for data" in blank.locator(".gd-text").inner_text()
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    blank.locator("[data-ask=trial]").click()
    assert blank.evaluate("window.asked.at(-1).ask") == "trial"
