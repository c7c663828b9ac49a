"""Findings of three kinds, our own share, what fills the memory, what a trial restores: in a bare page."""

# ruff: noqa: E501 (scripts of the page)

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from playwright.sync_api import Page

from gpu_doctor.report.panel import PanelInput
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare import Effect
from tests.support.panel_parts import shown
from tests.support.recordings import Loop, on_gpu, starved
from tests.support.seen_by_all import pale, serious
from tests.support.still import asked, show
from tests.support.trial_parts import verified

MODEL: Final = {"parameter_bytes": 100 << 20}
FLOAT32: Final = on_gpu(tensor_active=0.0, setup=MODEL, batch_bytes=float(19 << 20), facts={"duration_s": 1.0})


def panel(loop: Loop, ours: float = 0.0) -> PanelInput:
    """After a run of the loop, of which gpu_doctor itself took a part."""
    recording = loop.recording()
    steps = recording.steps
    own_s = steps.wall_s * ours
    return shown(replace(recording, steps=replace(steps, ours_s=own_s, forward_s=steps.forward_s - own_s)))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_computing_limits_has_its_first_hint_under_the_headline(blank: Page, theme: str) -> None:
    show(blank, panel(FLOAT32), theme, plots=False)
    top = blank.locator(".gd-verdict .gd-advice")
    assert top.inner_text().startswith("Worth a trial:") and "forecast" not in top.inner_text()
    assert "trial" not in blank.locator(".gd-text").inner_text(), "the headline repeats the hint"
    assert blank.locator(".gd-primary").all_inner_texts() == ["Try it"]
    blank.locator(".gd-verdict [data-ask=try]").press("Enter")
    assert asked(blank)[-1]["settings"] == {"amp": "bf16"}
    assert serious(blank) == [] and pale(blank) == []


def test_hints_are_a_quiet_line_beside_findings_with_bars(blank: Page) -> None:
    given = panel(FLOAT32)
    lost = shown(starved()).diagnosis
    assert given.diagnosis is not None and lost is not None
    bound = replace(lost.findings[0], rule="bound", cost_share=0.2, kind="at-most")
    both = replace(given.diagnosis, findings=(lost.findings[0], bound))
    show(blank, replace(given, diagnosis=both), plots=False)
    prices = blank.locator(".gd-findings details > summary .gd-share").all_inner_texts()
    assert [one.partition(" ")[0] for one in prices] == ["lost", "at"] and blank.locator(".gd-part").count() == 2
    hints = blank.locator(".gd-hints")
    assert [one.strip() for one in hints.inner_text().split("\n")] == ["worth a trial:", "amp=bf16", "Try it"]
    unfold = hints.locator("[aria-expanded]")
    unfold.press("Enter")
    assert unfold.get_attribute("aria-expanded") == "true" and "autocast" in blank.locator(".gd-unfolded").inner_text()
    assert serious(blank) == [] and pale(blank) == []
    hints.get_by_role("button", name="Try amp=bf16").press("Enter")
    assert asked(blank)[-1]["settings"] == {"amp": "bf16"}


def test_our_own_share_is_a_piece_from_two_per_cent_on(blank: Page) -> None:
    show(blank, panel(FLOAT32, ours=0.032), plots=False)
    assert blank.locator(".gd-chips > span").last.inner_text().split()[:2] == ["gpu_doctor", "3"]
    assert "hooks in the loop (3 % of a step)" in blank.locator(".gd-own").inner_text().replace("\u202f", " ")
    show(blank, panel(FLOAT32, ours=0.012), plots=False)
    assert "gpu_doctor" not in blank.locator(".gd-chips").inner_text()
    assert "hooks" not in blank.locator(".gd-own").inner_text()


def test_under_the_plots_stands_what_is_known_to_fill_the_memory(blank: Page) -> None:
    show(blank, panel(FLOAT32), plots=False)
    said = blank.locator(".gd-filling").inner_text().replace("\u202f", " ")
    assert said == "in memory: model 100 MiB, gradients at most 100 MiB, one batch 19 MiB"
    show(blank, panel(FLOAT32.but(setup={}, has_loader=False)), plots=False)
    assert blank.locator(".gd-filling").inner_text() == ""


def test_what_a_trial_restores_and_what_was_not_judged_are_a_line_each(blank: Page) -> None:
    show(blank, panel(FLOAT32), plots=False)
    restores = blank.locator(".gd-before summary")
    assert restores.bounding_box()["height"] < 30  # type: ignore[index]
    restores.focus()
    assert [one["ask"] for one in asked(blank)] == ["before"]
    blank.evaluate("window.tell({ before: [{ text: 'Keeps a copy.', tone: '' }, { text: 'Loses it.', tone: 'bad' }] })")
    assert blank.get_by_text("Loses it.").is_visible() and not blank.get_by_text("Keeps a copy.").is_visible()
    restores.press("Enter")
    assert blank.get_by_text("Keeps a copy.").is_visible()
    silent = blank.locator(".gd-footer summary", has_text="not judged on this machine")
    assert blank.locator(".gd-why").first.is_hidden()
    silent.press("Enter")
    assert blank.locator(".gd-why").first.is_visible()
    assert serious(blank) == [] and pale(blank) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_thin_line_marks_the_ceiling_in_the_bar_of_the_code_as_written(blank: Page, theme: str) -> None:
    given = shown(starved(), effects=(Effect(settings=knobs.IDEAL_LOADER, speedup=2.0, low=1.9, high=2.1),))
    show(blank, given, theme, plots=False)
    at = "(one) => (one.getBoundingClientRect().left + 1 - one.parentNode.getBoundingClientRect().left) / one.parentNode.clientWidth"
    assert blank.locator(".gd-bar > .gd-ceiling").evaluate(at) == pytest.approx(0.5, abs=0.01)
    assert "ideal loader" in blank.locator(".gd-bound").inner_text()
    tried = verified()
    show(blank, replace(tried, effects=(*given.effects, *tried.effects), trials=tried.trials), theme, plots=False)
    written, _ = blank.locator(".gd-sides .gd-bar").all()
    assert blank.locator(".gd-bar > .gd-ceiling").count() == written.locator(".gd-ceiling").count() == 1
    drawn = written.evaluate(
        "(bar) => [...bar.querySelectorAll('span')].at(-1).getBoundingClientRect().right - bar.getBoundingClientRect().left"
    )
    width = written.evaluate("(bar) => bar.clientWidth")
    assert written.locator(".gd-ceiling").evaluate(at) == pytest.approx(drawn / width / 2, abs=0.01)
    assert serious(blank) == [] and pale(blank) == []
