"""The panel in a bare page: nothing is cut from 600 to 1600 px; folds, copies, keys, hostile text is text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from gpu_doctor.cell.fix import Fix
from gpu_doctor.recording import Recording
from gpu_doctor.report.panel import PanelInput, as_json, fix_shown
from tests.support.lab import new_page
from tests.support.repository import ARTIFACTS
from tests.support.seen_by_all import pale, serious
from tests.support.still import CUT, asked, resize, show, unfold
from tests.support.trial_parts import (
    BOTH,
    CURED,
    LOOK,
    WORKERS,
    WROTE,
    effects,
    fix,
    plan,
    searched,
    swept,
    treated,
    trials,
)  # fmt: skip

EVIL = "<img src=x onerror=window.ran=1></pre><script>window.ran=2</script>"


@pytest.fixture
def blank(browser: Browser) -> Iterator[Page]:
    context, page = new_page(browser)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield page
    context.close()


def told(change: Fix) -> dict[str, Any]:
    """A change as the kernel tells it of the advice of `starved`."""
    found: dict[str, Any] = as_json(fix_shown(change, {"num_workers": 3}))
    return found


STAGES: Final[dict[str, Callable[[], PanelInput]]] = {
    "a treatment": treated,
    "a sweep": lambda: treated(True, plan=None, sweep=swept(), largest=searched()),
    "a sweep on a CPU": lambda: treated(False, plan=None, sweep=swept()),
    "a deep look": lambda: dataclasses.replace(treated(True, plan=None), look=LOOK),
}


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_cut_from_600_to_1600(blank: Page, look: str, stage: str) -> None:
    """With all unfolded that a panel has after its trials; nothing of it is pale, or serious to axe."""
    errors = show(blank, STAGES[stage](), look)
    for number in range(2):
        blank.locator("[data-fold=row]").nth(number).click()
    unfold(blank)
    blank.locator("[data-fold=sweep]").click()
    for value in ("num_workers=0", "num_workers=2", "amp=bf16"):
        blank.locator(f"[data-tick='{value}']").click()
    for width in (600, 700, 800, 900, 1000, 1300, 1600):
        resize(blank, width)
        measured = blank.evaluate(CUT)
        assert all(measured[name] <= 0 for name in ("page", "table", "spill", "broken")), (width, measured)
        if width in (600, 1000, 1600):
            ARTIFACTS.mkdir(parents=True, exist_ok=True)
            name = f"{stage.replace(' ', '-')}-{look}-{width}.png"
            blank.locator("[data-gpu-doctor]").screenshot(path=ARTIFACTS / name)
    if stage == "a deep look":
        told = blank.locator(".gd-look").inner_text()
        assert "aten::convolution" in told and "cell line 9" in told
    assert errors == [] and serious(blank) == [] and pale(blank) == []


def test_code_shows_the_persons_own_cell_changed(blank: Page) -> None:
    show(blank, treated(plan=None))
    blank.locator(".gd-verdict [data-fold=code]").click()
    [request] = asked(blank)
    assert request == {"ask": "fix", "settings": {"num_workers": 3}}
    assert "num_workers=3" in blank.locator(".gd-verdict .gd-code pre").inner_text(), "the lines to paste meanwhile"
    blank.evaluate("(fix) => window.tell({ fixes: { 'num_workers=3': fix } })", told(fix()))
    diff = blank.locator(".gd-verdict pre.gd-diff")
    added = diff.locator(".gd-added")
    assert "shuffle=True, num_workers=4)  # mine" in added.nth(0).inner_text()
    assert diff.locator(".gd-removed").count() == 2
    blank.locator(".gd-verdict .gd-toggle").click()
    assert diff.inner_text().rstrip() == CURED.rstrip(), "the whole cell"
    blank.get_by_role("button", name="Copy this cell with the change").click()
    blank.get_by_text("copied", exact=True).wait_for(timeout=3000)
    assert blank.evaluate("navigator.clipboard.readText()") == CURED
    failed = {**told(fix()), "error": "It could not be written into your cells: why."}
    blank.evaluate("(fix) => window.tell({ fixes: { 'num_workers=3': fix } })", failed)
    assert "could not be written into your cells: why." in blank.locator(".gd-verdict .gd-fix").inner_text()
    assert "num_workers=3" in blank.locator(".gd-verdict .gd-code pre").inner_text()


def test_the_code_of_chosen_knobs_is_found_whatever_way_figures_are_written(blank: Page) -> None:
    show(blank, treated(plan=None))
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    blank.get_by_role("button", name="code of these").click()
    assert asked(blank)[-1] == {"ask": "fix", "settings": {"num_workers": 2}}
    answer = as_json(fix_shown(fix(), {"num_workers": 2.0}))
    blank.evaluate("(fix) => window.tell({ fixes: { 'num_workers=2.0': fix } })", answer)
    assert blank.locator(".gd-knobs pre.gd-diff .gd-added").count() == 3


def test_what_a_trial_left_is_unfolded_by_key(blank: Page) -> None:
    show(blank, treated())
    blank.locator("[data-fold=row]").first.focus()
    blank.keyboard.press("Enter")
    detail = blank.locator(".gd-detail").first
    said = detail.inner_text()
    assert "Loss the same in every step." in said and WROTE in said
    assert detail.locator("img").get_attribute("src").startswith("data:image/svg+xml;base64,")  # type: ignore[union-attr]
    assert blank.evaluate("document.querySelector('.gd-detail img').naturalWidth") == 340, "the picture is drawn"
    assert blank.evaluate("document.activeElement.dataset.fold") == "row", "focus stays where it was"
    blank.keyboard.press("Enter")
    assert blank.locator(".gd-detail").count() == 0


def test_the_waterfall_and_what_was_not_kept(blank: Page) -> None:
    show(blank, treated())
    told = blank.locator(".gd-plan:not([hidden])")
    assert [one.split("\n")[0] for one in told.locator(".gd-what").all_inner_texts()] == [
        "as written", "+ num_workers=4", "+ amp=bf16",
    ]  # fmt: skip
    assert told.locator(".gd-rung b").all_inner_texts() == ["1.00x", "3.33x", "4.13x"]
    assert "1.18-1.31" in told.inner_text() and "did not fit into memory" in told.locator(".gd-dropped").inner_text()
    assert "Decode images once" in told.locator(".gd-byhand").inner_text()
    told.get_by_role("button", name="set the knobs to this").click()
    blank.locator("[data-ask=trial]").click()
    assert asked(blank)[-1]["settings"] == BOTH


def test_what_a_trial_cannot_put_back_is_said_before_the_click(blank: Page) -> None:
    show(blank, treated())
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    blank.locator("[data-ask=trial]").hover()
    assert [one["ask"] for one in asked(blank)] == ["before"]
    blank.evaluate("window.tell({ before: [{ text: 'A trial cannot put back: it (generator).', tone: 'bad' }] })")
    assert "it (generator)" in blank.locator(".gd-before").inner_text()
    blank.locator("[data-ask=treat]").hover()
    assert len(asked(blank)) == 1, "asked once a run"


def test_a_box_allows_what_a_trial_would_be_refused_for(blank: Page) -> None:
    show(blank, treated())
    box = blank.get_by_label("Allow it")
    assert not box.count()
    said = "[{ text: 'Refused.', tone: 'bad', allow: 'processes', tick: 'Allow it' }]"
    blank.evaluate(f"window.tell({{ before: {said} }})")
    blank.locator("[data-ask=treat]").click()
    assert asked(blank)[-1]["allow"] == [] and "Refused." in blank.locator(".gd-before").inner_text()
    box.focus()
    blank.keyboard.press("Space")
    assert box.is_checked() and "Refused." not in blank.locator(".gd-before").inner_text()
    for what in ("treat", "trial"):
        if what == "trial":
            blank.locator("[data-knob=num_workers]").select_option(label="2")
        blank.locator(f"[data-ask={what}]").click()
        assert asked(blank)[-1]["allow"] == ["processes"]
    blank.evaluate("window.tell({ before: null })")
    assert not box.count()
    blank.locator("[data-ask=treat]").click()
    assert asked(blank)[-1]["allow"] == [], "without the refusal there is nothing to allow"


def test_hostile_text_stays_text(blank: Page) -> None:
    def evil(one: Recording) -> Recording:
        return dataclasses.replace(one, notes=(EVIL,), settings={**one.settings, "amp": EVIL})

    pairs = tuple((evil(a), evil(b)) for a, b in trials())
    tried = tuple(
        dataclasses.replace(one, settings={**one.settings, "amp": EVIL}, baseline_settings={**WORKERS, "amp": EVIL})
        for one in effects(trials())
    )
    change = fix(EVIL, EVIL + "\n" + EVIL, notes=(EVIL,), paste=EVIL)
    given = treated(
        effects=tried, trials=pairs, plan=plan(tried, fix=change, by_hand=(EVIL,)), message=EVIL, source=EVIL,
        before=[{"text": EVIL, "tone": "bad"}], fixes={"num_workers=3": told(change)}, notes=(EVIL,),
    )  # fmt: skip
    errors = show(blank, given)
    for one in blank.locator("[data-fold=row]").all():
        one.click()
    blank.locator(".gd-verdict [data-fold=code]").click()
    blank.locator(".gd-plan .gd-toggle").click()
    blank.wait_for_timeout(300)
    assert blank.evaluate("window.ran") == 0
    assert blank.evaluate("document.querySelectorAll('[data-gpu-doctor] :is(script, img[src=x])').length") == 0
    assert blank.locator("[data-gpu-doctor]").inner_text().count("onerror") >= 6
    assert errors == []


def test_workers_and_what_needs_them_are_chosen_together(blank: Page) -> None:
    show(blank, treated(), "light")
    blank.locator("[data-fold=more]").click()
    keeps = blank.locator("[data-knob=persistent_workers]")
    assert keeps.is_disabled() and "set num_workers above 0 first" in blank.locator(".gd-knobs").inner_text()
    blank.locator("[data-knob=num_workers]").select_option(label="2")
    assert keeps.is_enabled() and "set num_workers above 0 first" not in blank.locator(".gd-knobs").inner_text()
    keeps.select_option(label="on")
    blank.locator("[data-ask=trial]").click()
    assert asked(blank)[-1]["settings"] == {"num_workers": 2, "persistent_workers": True}
    blank.locator(".gd-knobs").screenshot(path=ARTIFACTS / "knobs_with_workers.png")
