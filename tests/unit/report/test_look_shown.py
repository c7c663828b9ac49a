"""A deep look and an ideal loader in the panel and in the static result, and what the panel asks for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_doctor import report
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Setup
from gpu_doctor.report.panel import PanelInput, checked_request, state
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare import Effect
from tests.support.recordings import starved
from tests.support.trial_parts import HOSTILE, LOOK

IDEAL = Effect(settings=knobs.IDEAL_LOADER, speedup=2.0, low=1.9, high=2.1, verdict="faster")
WORKERS = Effect(settings={"num_workers": 4}, speedup=1.8, low=1.75, high=1.85, verdict="faster")


def shown(**more: Any) -> dict[str, Any]:
    """The state of the panel after a run."""
    run = starved()
    given = PanelInput(status="idle", setup=run.setup, recordings=(run,), diagnosis=diagnose(run), **more)
    found: dict[str, Any] = json.loads(json.dumps(state(given, knobs.KNOBS), allow_nan=False))
    return found


def test_a_look_is_drawn_with_shares_callers_and_differences() -> None:
    look = shown(look=LOOK)["look"]
    first, second = look["operators"]
    assert (first["label"], first["share"]) == ("aten::convolution", 0.4)
    assert "conv (Conv2d)" in first["said"] and "cell line 9" in first["said"]
    assert "ampere_s16816gemm" in second["said"]
    assert "25 %" in look["sentence"] and len(look["notes"]) == 1 and "its nodes alone" in look["notes"][0]
    assert shown()["look"] is None


def test_the_static_result_has_the_look_with_the_users_text_escaped() -> None:
    run = starved()
    told = report.Reported(diagnose(run), (run,), look=LOOK)
    assert "aten::convolution" in report.text(told) and "aten::convolution" in report.html(told)
    assert HOSTILE not in report.html(told)


def test_the_ceiling_is_marked_in_the_anatomy_and_cures_are_judged_against_it() -> None:
    run = starved()
    found = shown(effects=(IDEAL, WORKERS))
    assert found["anatomy"]["ceiling"]["share"] == 0.5
    assert any("90 %" in note for note in found["table"]["details"][2]["notes"])
    told = report.Reported(diagnose(run), (run,), (IDEAL, WORKERS))
    assert "ideal loader" in report.text(told) and "ideal loader" in report.html(told)
    assert found["result"]["settings"] == {"num_workers": 4}, "a bound is no result"


def test_an_ideal_loader_is_offered_where_the_loop_has_a_loader() -> None:
    assert shown()["noIdeal"] == ""
    without = PanelInput(status="idle", setup=Setup(usable_cores=2), recordings=(starved(),))
    assert state(without, knobs.KNOBS)["noIdeal"]


@pytest.mark.parametrize("ask", ["ideal", "look"])
def test_the_page_may_ask_for_both(ask: str) -> None:
    assert checked_request({"ask": ask}, knobs.KNOBS)["ask"] == ask
