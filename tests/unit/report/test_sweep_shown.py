"""A sweep and the search for the largest batch in panel and report: asked for, run between cells, shown, kept."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report import as_text as report
from gpu_doctor.report.panel import PanelInput, state
from gpu_doctor.report.panel.controls import UNKNOWN, checked_request
from gpu_doctor.report.searches import FIRST, largest_html, rows, sizes, sweep_html
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.results import Largest, Sweep
from gpu_doctor.trials.searches import SWEEP_TRIALS, no_largest
from tests.support.html_page import HOSTILE, Page
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.trial_parts import GIVEN_UP, searched, side, swept, treated


def drawn(given: PanelInput) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(state(given, knobs.KNOBS), allow_nan=False))
    return found


# ---- what a page may ask for ----------------------------------------------------------------------------------------


def test_a_sweep_is_requested_with_its_grid() -> None:
    asked = checked_request(
        {"ask": "sweep", "grid": {"num_workers": [0, 2], "amp": ["bf16"]}, "steps": 30}, knobs.KNOBS
    )
    assert asked["grid"] == {"num_workers": [0, 2], "amp": ["bf16"]} and asked["steps"] == 30
    assert "grid" not in checked_request({"ask": "largest"}, knobs.KNOBS)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (None, "A sweep takes knobs, each with a list"),
        ({"num_workers": 2}, "A sweep takes knobs, each with a list"),
        ({"wrokers": [1]}, "no knob named 'wrokers'"),
        ({"num_workers": ["two"]}, "num_workers takes a whole number"),
        ({"num_workers": [[1]]}, "num_workers takes a number, a text"),
        ({"num_workers": list(range(SWEEP_TRIALS + 1))}, f"a sweep takes {SWEEP_TRIALS}"),
    ],
)
def test_a_grid_that_cannot_be_swept_is_one_sentence(grid: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked_request({"ask": "sweep", "grid": grid}, knobs.KNOBS)


# ---- what is shown --------------------------------------------------------------------------------------------------


def test_a_search_that_cannot_be_says_why_before_the_click() -> None:
    on_cpu, on_gpu = starved(), starved(gpu=True)
    assert drawn(shown(on_cpu))["noLargest"] == no_largest(on_cpu.setup)
    assert no_largest(on_cpu.setup).startswith("The loop does not use a GPU")
    assert drawn(shown(on_gpu))["noLargest"] == ""
    assert drawn(PanelInput())["noLargest"] == UNKNOWN
    loader = dataclasses.replace(on_gpu.setup.loaders[0], refusals={"batch_size": "A batch_sampler owns the batches."})
    held = dataclasses.replace(on_gpu, setup=dataclasses.replace(on_gpu.setup, loaders=(loader,)))
    assert drawn(shown(held))["noLargest"] == "A batch_sampler owns the batches."


def test_without_ray_tune_no_sweep_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.report.panel.panel_state.no_ray", lambda: "not installed")
    assert drawn(shown(starved()))["noSweep"] == "not installed"


def test_both_are_busy_in_words() -> None:
    for status, said in (("sweeping", "sweep"), ("searching", "looking for the largest batch")):
        found = drawn(shown(starved(), status=status))
        assert found["busy"] and found["header"]["status"] == said


def test_the_fastest_combination_stands_first_and_each_says_how_it_ended() -> None:
    found = rows(swept())
    assert [one.setting for one in found][:3] == ["as written", "num_workers=2, amp=bf16", "num_workers=2, amp=off"]
    assert [one.best for one in found] == [False, True, False, False, False, False, False]
    assert found[1].share == 1.0 and found[0].share == pytest.approx(1 / 2.38, abs=1e-3)
    assert (found[1].gain, found[1].rate) == ("2.38x (2.2-2.5) faster", "4\u202f000 samples/s")
    assert found[3].note == GIVEN_UP
    assert (found[6].gain, found[6].state, found[6].note) == ("", "refused", "The loader owns its workers.")
    panel = drawn(treated(sweep=swept()))["sweep"]
    assert panel["settings"] == {"num_workers": 2, "amp": "bf16"}
    assert panel["sentence"].startswith("6 combinations: num_workers=2, amp=bf16 is best, 2.35x (2.2-2.5)")
    assert any("slower than the best: num_workers=2, amp=off" in one for one in panel["notes"])
    assert drawn(treated())["sweep"] is None


def test_a_sweep_without_a_gain_turns_no_knob() -> None:
    none = Sweep((Effect({"num_workers": 2}, {}, 1.0, 0.9, 1.1, "no-difference"),), stopped=True)
    panel = drawn(treated(sweep=none))["sweep"]
    assert panel["settings"] == {} and "stopped early" in panel["sentence"]
    assert rows(Sweep(())) == ()


def test_every_size_says_its_memory_its_speed_and_what_it_is() -> None:
    found = {one.label: one for one in sizes(searched())}
    assert list(found) == ["128", "256", "704", "752"]
    assert found["256"].said.endswith("best for samples/s") and found["256"].chosen
    assert found["704"].said.endswith("largest that fits") and found["704"].peak == "74.2 GiB"
    assert (found["752"].said, found["752"].peak, found["752"].share) == ("did not fit", "", 1.0)
    assert found["128"].share == pytest.approx(16.5 / 79.2, abs=1e-3)
    panel = drawn(treated(largest=searched()))["largest"]
    assert panel["settings"] == {"batch_size": 256} and panel["sentence"].startswith("704 (5 % left free")
    unknown = drawn(treated(largest=Largest(None, reason="The search was stopped.")))["largest"]
    assert unknown["settings"] == {} and unknown["sentence"] == "Not known. The search was stopped."


def test_the_static_result_keeps_both() -> None:
    recording = side()
    page = Page(report.html(Reported(diagnose(recording), (recording,), sweep=swept(), largest=searched())))
    assert "num_workers=2, amp=bf16 is best" in page.text and "best for samples/s" in page.text
    text = report.text(Reported(diagnose(recording), (recording,), sweep=swept(), largest=searched()))
    assert "Sweep of 6 combinations" in text and "Largest batch that fits: 704" in text


def test_many_combinations_are_folded_and_hostile_text_is_text() -> None:
    many = tuple(Effect({"amp": f"{HOSTILE}{n}"}, {}, 1.0 + n, reason=HOSTILE) for n in range(FIRST + 3))
    html = sweep_html(Sweep(many))
    assert "3 more combinations" in html and "<script>" not in html
    assert "<script>" in Page(html).text, "as text"
    for notes in ((), (HOSTILE,)):
        Page(largest_html(searched(reason=HOSTILE, notes=notes)))
