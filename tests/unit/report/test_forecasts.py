"""The forecast of a setting is told as soon as a knob is turned: of every single value, and of what a page asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.words import NO_FORECAST, forecast_words
from gpu_doctor.notebook.actions import Actions
from gpu_doctor.notebook.details import MOST_FIXES, Details
from gpu_doctor.recording import Settings
from gpu_doctor.report.contract import ForecastShown
from gpu_doctor.report.panel import Memory, PanelInput, state
from gpu_doctor.report.panel import forecasts as told
from gpu_doctor.report.panel.controls import checked_request, controls
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from tests.support.panel_parts import shown
from tests.support.panel_visits import Visited
from tests.support.recordings import starved


def said(given: PanelInput, settings: Settings) -> str:
    """What the page finds for settings."""
    found = state(given, knobs.KNOBS)["forecasts"]
    texts = [str(one["text"]) for one in found if one["settings"] == settings]
    assert all(one["known"] is (not one["text"].startswith("no forecast")) for one in found)
    assert len(texts) == 1, found
    return texts[0]


def test_every_value_that_can_be_chosen_has_a_forecast_or_is_said_to_have_none() -> None:
    given = shown(starved())
    offered = controls(knobs.KNOBS, given.setup, known=True)
    for knob in offered:
        for choice in knob.choices:
            if choice.value not in (None, knob.written) and not choice.refusal:
                assert said(given, {knob.name: choice.value})
    assert said(given, {"num_workers": 2}).startswith("predicted 2.7x (")
    assert said(given, {"amp": "bf16"}) == NO_FORECAST


def test_a_forecast_is_the_one_that_a_trial_will_stand_beside() -> None:
    given = shown(starved())
    assert given.diagnosis is not None
    found = forecast(given.diagnosis.vitals, {"num_workers": 2})
    assert found is not None
    assert said(given, {"num_workers": 2}) == f"predicted {forecast_words(found.speedup, found.low, found.high)}"


def test_a_cure_is_foretold_alike_in_the_advice_and_at_the_knob() -> None:
    given = shown(starved())
    advice = state(given, knobs.KNOBS)["verdict"]["advice"]
    assert said(replace(given, asked=(advice["settings"],)), advice["settings"]) == advice["predicted"]


def test_several_knobs_have_a_forecast_when_the_page_requests_it_and_not_before() -> None:
    stay: Settings = {"num_workers": 2, "persistent_workers": True}
    both: Settings = {"num_workers": 2, "amp": "bf16"}
    given = shown(starved())
    assert all(len(one["settings"]) == 1 for one in state(given, knobs.KNOBS)["forecasts"])
    given = replace(given, asked=(stay, both))
    found = forecast(measure(starved()), stay)
    assert found is not None
    assert said(given, stay) == f"predicted {forecast_words(found.speedup, found.low, found.high)}"
    assert said(given, both) == told.NONE_TOGETHER


def test_what_was_tried_is_shown_as_measured() -> None:
    effects = (
        Effect({"num_workers": 2}, {}, 2.1, 2.0, 2.2, "faster"),
        Effect({"amp": "bf16"}, {}, outcome="failed", reason="Why."),
        Effect({"num_workers": 4}, {"num_workers": 2}, 1.1, 1.0, 1.2, "faster"),
        Effect({"num_workers": 1}, {}, 1.28, 0.97, 1.7, "inconclusive"),
    )
    given = shown(starved(), effects=effects)
    assert said(given, {"num_workers": 2}) == "measured 2.10x (2.0-2.2) in trial 1"
    assert said(given, {"num_workers": 1}).endswith(" in trial 4: inconclusive, at most 1.70x"), "not told as a gain"
    assert said(given, {"num_workers": 4}).startswith("predicted"), "it was tried over other settings"
    assert said(given, {"amp": "bf16"}) == NO_FORECAST
    both: Settings = {"num_workers": 2, "amp": "bf16"}
    given = shown(starved(), effects=(Effect(both, {}, 2.1, 2.0, 2.2, "faster"),), asked=(both,))
    assert said(given, both) == "measured 2.10x (2.0-2.2) in trial 1", "several together too"


def test_a_forecast_is_against_the_code_as_written_whatever_ran_last() -> None:
    base, turned = starved(), starved(wait_s=0.002, workers=4, settings={"num_workers": 4})
    after = shown(base, recordings=(base, turned), diagnosis=diagnose(turned))
    assert said(after, {"num_workers": 2}) == said(shown(base), {"num_workers": 2})
    alone = shown(turned, turned={"num_workers": 4})
    assert state(alone, knobs.KNOBS)["forecasts"] == [], "the code as written was not measured"


def test_before_the_loop_is_known_nothing_is_foretold() -> None:
    assert state(PanelInput(), knobs.KNOBS)["forecasts"] == []
    few = shown(starved(steps=2), status="recording")
    told = [one for one in state(few, knobs.KNOBS)["forecasts"] if len(one["settings"]) == 1]
    assert {one["text"] for one in told} == {NO_FORECAST}


def test_they_are_worked_out_when_something_changes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[Settings] = []

    def counted(shown: Any, vitals: Any, settings: Settings) -> ForecastShown:
        worked.append(settings)
        return ForecastShown(settings, NO_FORECAST, False)

    monkeypatch.setattr(told, "_shown", counted)
    here, there = shown(starved()), shown(starved())
    memory, other = Memory(), Memory()
    state(here, knobs.KNOBS, memory)
    once = len(worked)
    state(there, knobs.KNOBS, other)
    for given, known in ((here, memory), (there, other), (here, memory)):
        state(given, knobs.KNOBS, known)
    assert len(worked) == 2 * once > 20, "two panels do not take each other's place"
    state(replace(here, asked=({"num_workers": 2, "amp": "bf16"},)), knobs.KNOBS, memory)
    assert len(worked) == 3 * once + 1
    state(replace(there, recordings=(*there.recordings, starved())), knobs.KNOBS, other)
    assert len(worked) == 4 * once + 1, "another run may change what is foretold"


def test_a_request_of_the_page_is_answered_at_once_while_something_runs() -> None:
    visit: Any = Visited()
    visit.details = Details(None)  # type: ignore[arg-type]
    actions = Actions(visit)
    actions._busy = True
    settings = {"num_workers": 2, "amp": "bf16"}
    actions.take(checked_request({"ask": "forecast", "settings": settings}, knobs.KNOBS))
    assert visit.details.asked == (settings,) and visit.seen == ["idle"]


def test_the_settings_that_were_requested_last_stay() -> None:
    details = Details(None)  # type: ignore[arg-type]
    for number in range(MOST_FIXES + 3):
        details.request_forecast({"num_workers": number})
    details.request_forecast({"num_workers": 5})
    assert len(details.asked) == MOST_FIXES and details.asked[-1] == {"num_workers": 5}
    assert details.asked.count({"num_workers": 5}) == 1
