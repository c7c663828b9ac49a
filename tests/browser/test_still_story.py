"""The panel in a bare page: a turned knob is answered, what was proved stands first, then both sides of a trial."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Page

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.words import forecast_words
from gpu_doctor.report.panel import state
from gpu_doctor.trials import knobs
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.repository import ARTIFACTS
from tests.support.still import asked, resize, show
from tests.support.trial_parts import BOTH, verified


def turn(page: Page, knob: str, value: str) -> None:
    page.locator(f"[data-knob={knob}]").select_option(label=value)


def told_of(page: Page) -> str:
    return page.locator("[data-forecast]").inner_text()


def test_a_turned_knob_is_answered_by_the_page_itself(blank: Page) -> None:
    given = shown(starved())
    show(blank, given, plots=False)
    assert blank.locator("[data-forecast]").count() == 0
    turn(blank, "num_workers", "2")
    forecasts = state(given, knobs.KNOBS)["forecasts"]
    [said] = [one["text"] for one in forecasts if one["settings"] == {"num_workers": 2}]
    assert told_of(blank) == said and said.startswith("predicted 2.7x (") and asked(blank) == []
    turn(blank, "num_workers", "0 (as written)")
    assert blank.locator("[data-forecast]").count() == 0


def test_several_turned_knobs_are_asked_of_the_kernel(blank: Page) -> None:
    given = shown(starved())
    show(blank, given, plots=False)
    turn(blank, "num_workers", "2")
    blank.locator("[data-fold=more]").click()
    turn(blank, "persistent_workers", "on")
    both = {"num_workers": 2, "persistent_workers": True}
    assert asked(blank) == [{"ask": "forecast", "settings": both}] and told_of(blank).endswith("…")
    blank.wait_for_function("document.querySelector('[data-forecast]').innerText.includes('busy')", timeout=6000)
    answer = state(replace(given, asked=(both,)), knobs.KNOBS)["forecasts"]
    blank.evaluate("(forecasts) => window.tell({ forecasts })", answer)
    found = forecast(diagnose(starved()).vitals, both)
    assert found is not None
    assert told_of(blank) == f"predicted {forecast_words(found.speedup, found.low, found.high)}"
    assert blank.locator(".gd-predicted[data-forecast]").count() == 1
    turn(blank, "persistent_workers", "off (as written)")
    assert told_of(blank).startswith("predicted 2.7x (") and len(asked(blank)) == 1, "a single value was sent along"
    turn(blank, "amp", "bf16")
    answer = state(replace(given, asked=(both, asked(blank)[-1]["settings"])), knobs.KNOBS)["forecasts"]
    blank.evaluate("(forecasts) => window.tell({ forecasts })", answer)
    assert told_of(blank).startswith("no forecast for these together")
    for width in (600, 1000):
        resize(blank, width)
        assert blank.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        blank.locator(".gd-knobs").screenshot(path=ARTIFACTS / f"forecast-{width}.png")


@pytest.mark.parametrize("look", ["light", "dark"])
def test_what_was_proved_stands_first_and_both_sides_to_one_scale(blank: Page, look: str) -> None:
    errors = show(blank, verified(), look)
    proved = blank.locator(".gd-proved").inner_text()
    assert proved.startswith("3.81x faster with num_workers=4, amp=bf16") and proved.endswith("verified (3.6-4.1)")
    places = blank.evaluate(
        "['.gd-proved', '.gd-text'].map((one) => document.querySelector(one).getBoundingClientRect().top)"
    )
    assert places[0] < places[1], "the diagnosis is the second line"
    wide = blank.evaluate("""[...document.querySelectorAll('.gd-sides .gd-bar')].map((bar) =>
      [...bar.children].reduce((sum, one) => sum + one.getBoundingClientRect().width, 0) / bar.clientWidth)""")
    assert wide[0] > 0.8 and wide[1] / wide[0] == pytest.approx(10.5 / 40, abs=0.02)
    names = blank.locator(".gd-sidename").all_inner_texts()
    assert [one.split("\n")[0] for one in names] == ["as written", "num_workers=4, amp=bf16"]
    assert "40.0 ms" in names[0] and "10.5 ms" in names[1]
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for width in (600, 1000, 1600):
        resize(blank, width)
        cut = blank.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert cut <= 0, width
        blank.locator("[data-gpu-doctor]").screenshot(path=ARTIFACTS / f"story-{look}-{width}.png")
    assert errors == []


def test_use_it_turns_the_knobs_and_code_shows_the_cell(blank: Page) -> None:
    show(blank, verified(), plots=False)
    blank.locator("[data-use=result]").click()
    assert blank.locator("[data-knob=num_workers]").locator("option:checked").inner_text() == "4"
    assert blank.locator("[data-knob=amp]").locator("option:checked").inner_text().startswith("bf16")
    assert told_of(blank).startswith("measured 3.81x (3.6-4.1) in trial 4") or asked(blank)[-1]["ask"] == "forecast"
    blank.locator(".gd-result [data-fold=code]").click()
    assert asked(blank)[-1] == {"ask": "fix", "settings": BOTH}


def test_a_step_of_a_climb_stands_small_beside_its_figure_against_the_code_as_written(blank: Page) -> None:
    show(blank, verified(), plots=False)
    row = blank.locator(".gd-runs tbody tr").nth(2)
    cell = row.locator("td").nth(3)
    assert cell.inner_text().replace("\u00a0", " ").split("\n") == [
        "4.13x",
        "x1.24 (1.18-1.31) over num_workers=4 ▲ faster",
    ]
    sizes = cell.evaluate(
        "(one) => [one, one.querySelector('.gd-step')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert sizes[1] < sizes[0]


def test_while_a_run_goes_on_its_own_step_is_shown(blank: Page) -> None:
    show(blank, verified(status="recording"), plots=False)
    assert blank.locator(".gd-sides").count() == 0 and blank.locator(".gd-total").inner_text() == "40.0 ms"
