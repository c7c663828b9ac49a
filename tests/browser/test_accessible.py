"""The panel for everyone, in a bare page: contrast, axe, keys, tips, what is read out, motion, zoom."""

# ruff: noqa: E501 (scripts of the page)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from playwright.sync_api import Browser, Page

from gpu_doctor.report.panel import PanelInput
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.repository import ARTIFACTS
from tests.support.seen_by_all import pale, serious
from tests.support.still import resize, show
from tests.support.trial_parts import verified

STAGES: Final[dict[str, Callable[[], PanelInput]]] = {
    "before": lambda: replace(shown(starved(steps=4)), status="waiting", diagnosis=None, step_count=0),
    "during": lambda: shown(starved(), status="recording"),
    "after": lambda: verified(),
}
FOLDS: Final = (
    "[data-fold=more]", "[data-fold=sweep]", ".gd-verdict [data-fold=why]", ".gd-verdict [data-fold=code]", "[data-fold=row]",
)  # fmt: skip
CUT: Final = """(() => {
  const root = document.querySelector('[data-gpu-doctor]');
  const edge = root.getBoundingClientRect().right;
  const parts = [...root.querySelectorAll('*')].filter((one) => !one.closest('.bk-Figure, pre, .gd-bar, .gd-aloud, thead')
    && one.checkVisibility());
  return {
    hidden: parts.filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).textOverflow === 'ellipsis').length,
    page: document.documentElement.scrollWidth - innerWidth,
    spilt: parts.filter((one) => one.getBoundingClientRect().right > edge + 1).map((one) => one.outerHTML.slice(0, 80)),
    sideways: [...root.querySelectorAll('.gd-scroll')].filter((one) => one.scrollWidth > one.clientWidth).length,
  };
})()"""
UNCUT: Final = {"hidden": 0, "page": 0, "spilt": [], "sideways": 0}


def unfold(page: Page) -> None:
    """Opens all that a panel after its trials has, with a knob turned."""
    page.locator("[data-knob=num_workers]").select_option(label="2")
    for fold in FOLDS:
        page.locator(fold).first.click()
    for summary in page.locator("details > summary").all():
        summary.click()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("look", ["light", "dark", "high-light", "high-dark"])
def test_axe_finds_nothing_serious_and_no_text_is_pale(blank: Page, look: str, stage: str) -> None:
    """Forced colours too, in both themes of the page: they replace its colours, whatever it has set."""
    high = look.startswith("high")
    if high:
        blank.emulate_media(forced_colors="active", color_scheme="dark")  # the dark one, whatever the page
    errors = show(blank, STAGES[stage](), look.removeprefix("high-"))
    if stage == "after":
        unfold(blank)
    assert serious(blank) == [] and pale(blank) == []
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for width in (1000,) if high else (600, 1000, 1600):
        resize(blank, width)
        blank.locator("[data-gpu-doctor]").screenshot(path=ARTIFACTS / f"accessible-{stage}-{look}-{width}.png")
    assert errors == []


def test_the_contrast_is_that_of_blended_colours(blank: Page) -> None:
    """What axe leaves undecided: half-transparent text on half-transparent ground in a half-transparent group."""
    blank.set_content(
        "<main><p style='color: #000'>black</p><p style='color: rgba(0, 0, 0, .4)'>thin</p>"
        "<p style='color: #000; background: rgba(0, 0, 0, .6)'>dark</p>"
        "<p style='opacity: .5'><b style='color: #000; background: #fff'>faint</b></p></main>"
    )
    found = {one["text"]: one["ratio"] for one in pale(blank, "main")}
    assert found == {"thin": 2.85, "dark": 3.66, "faint": 3.98}


def test_a_control_that_cannot_act_keeps_the_focus_and_says_why(blank: Page) -> None:
    show(blank, shown(starved()), plots=False)
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    trial = blank.locator("[data-ask=trial]")
    trial.focus()
    blank.keyboard.press("Enter")
    asked = blank.evaluate("window.asked.length")
    blank.evaluate("window.tell({ busy: true, status: 'trial' })")
    assert blank.evaluate("document.activeElement.dataset.ask") == "trial", "it stays where it was while the trial runs"
    blank.keyboard.press("Enter")
    assert blank.evaluate("window.asked.length") == asked, "a trial was asked for while one ran"
    assert blank.locator(":disabled:not(option)").count() == 0
    unsaid = "[...document.querySelectorAll('.gpu-doctor [aria-disabled=true]')].filter((one) => !document.getElementById(one.getAttribute('aria-describedby'))?.innerText.trim()).map((one) => one.outerHTML)"
    blank.locator("[data-fold=more]").click()
    blank.locator("[data-fold=sweep]").click()
    blank.locator("[data-fold=sweep-more]").click()
    assert blank.locator("[aria-disabled=true]").count() > 10 and blank.evaluate(unsaid) == []
    blank.evaluate("window.tell({ busy: false, status: 'idle' })")
    assert blank.locator("[aria-disabled=true]").count() > 2 and blank.evaluate(unsaid) == []


def test_the_focus_stays_with_its_control_or_beside_it(blank: Page) -> None:
    """Others come and go before it, it goes itself; what has no focus takes none."""
    show(blank, shown(starved()), plots=False)
    held = "document.activeElement.dataset.ask ?? document.activeElement.tagName"
    blank.evaluate("""() => {
      const { verdict } = document.querySelector('[data-gpu-doctor]').gpuDoctor.state();
      window.foretold = (predicted) => window.tell({ verdict: { ...verdict, advice: { ...verdict.advice, predicted } } });
    }""")
    blank.locator(".gd-verdict [data-ask=try]").focus()
    for predicted in ("", "predicted 2x", ""):
        blank.evaluate("(predicted) => window.foretold(predicted)", predicted)
        assert blank.evaluate(held) == "try", "another control has its place"
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    blank.locator("[data-reset]").focus()
    blank.keyboard.press("Enter")
    assert blank.locator("[data-reset]").count() == 0 and blank.evaluate(held) == "trial"
    blank.evaluate("document.activeElement.blur()")
    blank.evaluate("window.foretold('predicted 3x')")
    assert blank.evaluate(held) == "BODY"


def test_one_button_stands_out_what_is_done_next(blank: Page) -> None:
    primary = "[...document.querySelectorAll('.gpu-doctor .gd-primary')].map((one) => one.dataset.ask ?? one.dataset.use ?? one.dataset.fold)"
    show(blank, shown(starved()), plots=False)
    assert blank.evaluate(primary) == ["try"]
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    assert blank.evaluate(primary) == ["trial"]
    show(blank, verified(), plots=False)
    assert blank.evaluate(primary) == ["result"], "what is proved is used, not tried"
    blank.locator("[data-use=result]").click()
    assert blank.evaluate(primary) == ["code"]
    blank.locator("[data-knob=batch_size]").select_option(index=0)
    assert blank.evaluate(primary) == ["trial"]


def test_a_value_that_is_refused_is_not_ticked_by_key(blank: Page) -> None:
    show(blank, shown(starved()), plots=False)
    blank.locator("[data-fold=more]").click()
    blank.locator("[data-fold=sweep]").click()
    tick = blank.locator("[data-tick='amp=fp16']")
    tick.focus()
    blank.keyboard.press("Space")
    assert not tick.is_checked() and "fp16 is slow on a CPU" in blank.locator(".gd-grid-of").inner_text()


def test_what_a_control_is_for_is_told_by_key_and_pointer_and_never_in_a_title(blank: Page) -> None:
    show(blank, verified())
    unfold(blank)
    titles = "[...document.querySelectorAll('[data-gpu-doctor] [title]')].map((one) => one.outerHTML)"
    assert blank.evaluate(titles) == [], "those in Bokeh's own toolbar apart"
    tip = blank.locator(".gd-tip")
    blank.locator("[data-ask=trial]").focus()
    blank.keyboard.press("Tab")
    blank.keyboard.press("Shift+Tab")
    assert "restores everything" in tip.inner_text()
    box, window = tip.bounding_box(), blank.viewport_size
    assert box and window and box["x"] >= 0 and box["x"] + box["width"] <= window["width"]
    blank.keyboard.press("Escape")
    assert tip.is_hidden()
    blank.keyboard.press("Shift+Tab")
    blank.keyboard.press("Tab")
    assert tip.is_visible()
    blank.keyboard.press("Enter")
    assert tip.is_hidden(), "pressed, the panel changes under it"
    blank.locator("[data-ask=treat]").hover()
    assert "confirm" in tip.inner_text()
    tip.hover()
    assert tip.is_visible(), "a tip may be pointed at"
    blank.mouse.move(2, 2)
    tip.wait_for(state="hidden")


def test_little_is_read_out_while_a_run_goes_on(blank: Page) -> None:
    """Figures change with every message; what is read out changes when a run begins or ends, or the verdict its kind."""
    show(blank, shown(starved(), status="recording"), plots=False)
    blank.evaluate("""() => {
      window.said = 0;
      const live = document.querySelectorAll('.gpu-doctor :is([role=status], [aria-live])');
      const heard = new MutationObserver(() => { window.said += 1; });
      for (const one of live) heard.observe(one, { subtree: true, childList: true, characterData: true });
      const { verdict, header } = document.querySelector('[data-gpu-doctor]').gpuDoctor.state();
      window.news = (number, more = {}) => window.tell({ verdict: { ...verdict, text: `The loop waits ${number} %.`, ...more },
        header: { ...header, clock: `00:${number}`, steps: `${number} steps`, settings: `num_workers=${number % 2}` } });
    }""")
    for number in range(10, 30):
        blank.evaluate("(number) => window.news(number)", number)
    assert "29 %" in blank.locator(".gd-text").inner_text() and blank.evaluate("window.said") == 0
    blank.evaluate("window.news(30, { kind: 'balanced' })")
    assert blank.evaluate("window.said") == 1 and blank.locator(".gd-aloud").inner_text() == "The loop waits 30 %."
    assert blank.locator("[aria-live=assertive], [role=alert]").count() == 0


def test_nothing_moves_where_less_motion_is_asked_for(blank: Page) -> None:
    running = "document.querySelector('[data-gpu-doctor]').getAnimations({ subtree: true }).length"
    widths = "document.querySelectorAll('.gd-bar span').forEach((one) => { one.style.flexGrow = 0.3; })"
    show(blank, shown(starved(), status="recording"), plots=False)
    assert blank.evaluate(running) > 0, "the dot pulses"
    blank.emulate_media(reduced_motion="reduce")
    blank.evaluate(widths)
    assert blank.evaluate(running) == 0


@pytest.mark.parametrize("width", [480, 600, 640], ids=["a cell at 600 px", "600 px", "1280 px at 200 %"])
def test_nothing_is_lost_in_a_narrow_or_enlarged_page(browser: Browser, width: int) -> None:
    """A page of 1280 px at 200 % has 640 px; JupyterLab leaves a cell about 480 of 600."""
    context = browser.new_context(device_scale_factor=2)
    page = context.new_page()
    try:
        show(page, verified(), width=width, plots=False)
        unfold(page)
        assert page.evaluate(CUT) == UNCUT
        cells = page.locator(".gd-runs tbody tr").first.locator("td")
        assert all(one.is_visible() for one in cells.all()), "no figure of the trials is left out"
        heads = page.locator(".gd-runs th").all_inner_texts()
        told = "(one) => getComputedStyle(one, '::before').content"
        assert [cells.nth(number).evaluate(told) for number in range(2, len(heads))] == [
            f'"{one}"' for one in heads[2:]
        ]
        assert page.get_by_role("cell", name="3.33x").first.is_visible(), "it is a table still"
        page.locator("[data-gpu-doctor]").screenshot(path=ARTIFACTS / f"accessible-narrow-{width}.png")
    finally:
        context.close()


def test_marks_of_colour_have_a_text(blank: Page) -> None:
    show(blank, verified())
    bars = "[...document.querySelectorAll('.gd-sides .gd-bar')].map((bar) => [bar.ariaLabel, [...bar.children].map((one) => one.textContent)])"
    for label, phases in blank.evaluate(bars):
        assert all(phase in label for phase in phases) and "ms" in label
    chips = blank.locator(".gd-chips").inner_text()
    assert all(phase in chips for _, phases in blank.evaluate(bars) for phase in phases)
    for tone in ("good", "bad"):
        for cell in blank.locator(f".gd-runs td.gd-{tone}").all():
            assert any(word in cell.inner_text() for word in ("faster", "slower", "x", "fit", "→"))
    for kind, mark in (("added", "+"), ("removed", "-")):
        assert all(one.startswith(mark) for one in blank.locator(f".gd-{kind}").all_text_contents())
    blank.locator(".gd-plan .gd-toggle").click()
    assert blank.locator(".gd-plan .gd-toggle").evaluate("(one) => getComputedStyle(one, '::before').content") == '"✓ "'
