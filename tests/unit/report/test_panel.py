"""The panel as plain data: header, verdict, anatomy, knobs, table, findings, and the requests that it lets through."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.recording import Setup
from gpu_doctor.recording.setup import InputFacts
from gpu_doctor.report.panel import Memory, PanelInput, Progress, state
from gpu_doctor.report.panel.controls import MOST_SECONDS, MOST_STEPS, UNKNOWN, checked_request, controls
from gpu_doctor.svg import PHASE_COLOURS
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from tests.support.panel_parts import shown
from tests.support.recordings import starved


def drawn(given: PanelInput) -> dict[str, Any]:
    """The state, after a trip through strict JSON."""
    found: dict[str, Any] = json.loads(json.dumps(state(given, knobs.KNOBS), allow_nan=False))
    return found


def control(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in found["knobs"] if one["name"] == name)


def test_before_the_first_step_nothing_is_claimed() -> None:
    found = drawn(PanelInput())
    assert found["header"]["machine"] == ""
    assert found["verdict"]["advice"] is None
    assert found["anatomy"]["segments"] == []
    assert found["table"]["rows"] == []
    assert {one["refusal"] for one in found["knobs"]} == {UNKNOWN}


def test_too_few_steps_are_no_verdict_while_the_loop_runs() -> None:
    few = starved(steps=3)
    assert drawn(shown(few, status="recording"))["verdict"]["text"].startswith("Listening to the loop")
    assert drawn(shown(few))["verdict"]["text"].startswith("Only 3 steps were measured")


def test_the_verdict_stands_with_its_price_and_what_to_try() -> None:
    found = drawn(shown(starved()))
    verdict = found["verdict"]
    assert verdict["text"].startswith("The loop waits for data 75 % of the time")
    assert verdict["kind"] == "input-bound"
    assert verdict["accent"] == PHASE_COLOURS["data_wait"]
    advice = verdict["advice"]
    assert advice["settings"]["num_workers"] >= 1
    assert advice["predicted"].startswith("predicted ")
    assert "num_workers=" in advice["code"]
    assert [one["title"] for one in advice["page"]][1:] == [
        *("What it means", "Why it costs you", "What to try", "In code", "When to leave it")
    ]
    assert "\n" not in advice["page"][1]["text"]


def test_the_anatomy_accounts_for_the_whole_step() -> None:
    anatomy = drawn(shown(starved()))["anatomy"]
    assert sum(one["share"] for one in anatomy["segments"]) == pytest.approx(1.0, abs=0.002)
    assert anatomy["total"] == "40.0 ms"
    first = anatomy["segments"][0]
    assert (first["label"], first["percent"], first["time"]) == ("data wait", "75 %", "30.0 ms")
    assert first["colour"] == PHASE_COLOURS["data_wait"]


def test_our_own_share_too_small_for_a_piece_leaves_no_hole_in_the_bar() -> None:
    one = starved()
    for ours, drawn_phases in ((0.012, 5), (0.022, 6)):
        steps = replace(one.steps, ours_s=one.steps.wall_s * ours)
        segments = drawn(shown(replace(one, steps=steps)))["anatomy"]["segments"]
        assert len(segments) == drawn_phases
        assert sum(segment["share"] for segment in segments) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("gpu", "says"), [(False, "no GPU: judging the CPU as the device"), (True, "NVIDIA H200")])
def test_the_header_names_the_device_that_is_judged(gpu: bool, says: str) -> None:
    machine = drawn(shown(starved(gpu=gpu)))["header"]["machine"]
    assert machine.startswith(says)
    assert machine.endswith("4 cores · torch 2.13.0+cpu")


def test_the_page_offers_the_budget_of_the_cells_line() -> None:
    most = {"mostSteps": MOST_STEPS, "mostSeconds": MOST_SECONDS}
    assert drawn(shown(starved()))["trial"] == {**most, "steps": 50, "seconds": 20.0}
    own = drawn(shown(starved(), trial_steps=200, trial_seconds=20.0))["trial"]
    assert own == {**most, "steps": 200, "seconds": 20.0}


def test_progress_of_a_trial() -> None:
    progress = Progress(12, 50, 8.4, "round 1, until it is clear: candidate")
    head = drawn(shown(starved(), status="trial", progress=progress, settings={"num_workers": 2}))["header"]
    assert head["progress"] == {
        "text": "round 1, until it is clear: candidate",
        "steps": "step 12 of 50",
        "share": 0.24,
        "left": "at most 8 s left",
    }
    assert head["settings"] == "num_workers=2"
    progress = Progress(0, 50, None, "round 1, until it is clear: baseline, setting up, 12 s so far")
    head = drawn(shown(starved(), status="trial", progress=progress))["header"]
    assert head["progress"]["text"].endswith("setting up, 12 s so far") and head["progress"]["left"] == ""
    assert "interrupt" in drawn(shown(starved(), status="trial", stop_live=False))["header"]["stop"]


def test_knobs_offer_what_they_can_honour_and_say_why_not() -> None:
    found = drawn(shown(starved()))
    workers = control(found, "num_workers")
    assert workers["written"] == 0 and not workers["refusal"]
    assert [one["label"] for one in workers["choices"]][:2] == ["0 (as written)", "1"]
    assert control(found, "pin_memory")["refusal"].endswith(".")
    amp = control(found, "amp")
    assert not amp["refusal"]
    assert any("fp16" in text for text in amp["partly"])
    assert "learning rate" in control(found, "batch_size")["turned"]
    assert workers["safe"] and "augmentation" in workers["turned"]


def test_every_knob_says_how_safe_it_is_and_what_it_changes() -> None:
    """Nothing is said of those alone that leave every number as it is."""
    found = drawn(shown(starved()))["knobs"]
    assert {one["name"] for one in found if not one["safe"]} == {"batch_size", "amp", "tf32"}
    same = {one["name"] for one in found if one["turned"] == "is safe. All results stay the same."}
    assert same == {"pin_memory", "prefetch_factor"}
    for one in found:
        assert one["turned"].startswith("is safe. " if one["safe"] else "changes the training. ")
        assert one["turned"].endswith("."), one["name"]
        assert not one["safe"] or len(one["turned"]) <= 160, "one line or two under the controls"


def test_a_loader_that_refuses_disables_the_knob_with_its_reason() -> None:
    recording = starved()
    loader = recording.setup.loaders[0]
    reason = "The batches come from its own batch_sampler."
    refusing = type(loader)(**{**vars(loader), "refusals": {"batch_size": reason}})
    setup = Setup(**{**vars(recording.setup), "loaders": (refusing,)})
    assert control(drawn(shown(recording, setup=setup)), "batch_size")["refusal"] == reason


def test_the_table_shows_runs_and_trials() -> None:
    base = starved()
    real = starved(wait_s=0.002, workers=4, settings={"num_workers": 4})
    effects = (
        Effect({"num_workers": 4}, {}, 2.87, 2.71, 3.02, "faster", 2.9, candidate_samples_per_s=9184.0),
        Effect({"batch_size": 4096}, outcome="out-of-memory", reason="A batch of 2048 fitted."),
        Effect({"amp": "fp16"}, outcome="refused", reason="fp16 on a CPU gains nothing."),
    )
    table = drawn(shown(base, recordings=(base, real), effects=effects))["table"]
    rows = [[cell["text"].replace("\u00a0", " ").replace("\u202f", " ") for cell in row] for row in table["rows"]]
    assert [row[0] for row in rows] == ["baseline", "run 1", "trial 1", "trial 2", "trial 3"]
    assert [row[1] for row in rows[:2]] == ["as written", "num_workers=4"]
    assert rows[0][2:4] == ["3 200", "1.00x"]
    assert rows[1][3] == "3.33x"
    assert rows[2][2:5] == ["9 184", "2.87x (2.7-3.0) ▲ faster", "2.9x"]
    assert rows[3][3] == "did not fit into memory: A batch of 2048 fitted."
    assert rows[4][3] == "refused: fp16 on a CPU gains nothing."
    assert table["rows"][2][3]["tone"] == "good" and table["rows"][3][3]["tone"] == "bad"
    assert all(len(row) == len(table["head"]) for row in rows)
    assert table["head"][6] == "CPU"


def test_silent_rules_are_named_with_their_reason() -> None:
    found = drawn(shown(starved()))
    by_reason = {one["reason"]: one for one in found["silent"]}
    assert len(by_reason) == len(found["silent"]) <= 12
    assert by_reason["no GPU"]["folded"] and int(by_reason["no GPU"]["count"].split()[0]) > 20
    assert "small-batch" in by_reason["no GPU"]["rules"]


def test_a_risk_is_marked_and_says_what_will_happen() -> None:
    given = shown(starved())
    diagnosis = given.diagnosis
    assert diagnosis is not None
    full = "The memory is full after 340 more steps."
    risk = Finding("memory-growth", "Memory grows by 23 KiB a step.", None, risk=full, kind="hint")
    both = drawn(replace(given, diagnosis=replace(diagnosis, hints=(risk,))))
    assert (both["findings"][0]["price"], both["findings"][0]["risk"], both["verdict"]["risk"]) == ("lost 75 %", "", "")
    assert (both["hints"][0]["price"], both["hints"][0]["share"], both["hints"][0]["risk"]) == ("⚠ risk", None, full)
    alone = drawn(replace(given, diagnosis=replace(diagnosis, findings=(), hints=(risk,), verdict="A risk: it grows.")))
    assert alone["verdict"]["risk"] == "⚠ The memory is full after 340 more steps."


def test_a_run_whose_diagnosis_failed_is_shown_without_a_verdict() -> None:
    found = drawn(shown(starved(), diagnosis=None))
    assert found["verdict"]["text"] == "No verdict: the notes say why."
    assert found["table"]["rows"]


def test_what_needs_workers_is_offered_for_the_page_to_hold_back_while_there_are_none() -> None:
    setup = starved().setup
    alone = {one.name: one for one in controls(knobs.KNOBS, setup, known=True)}
    kept = alone["persistent_workers"]
    assert "above 0 first" in kept.needs_workers and kept.refusal == ""
    assert not any(one.refusal for one in kept.choices)
    assert {name for name, one in alone.items() if one.needs_workers} == {"persistent_workers", "prefetch_factor"}
    two = replace(setup, loaders=tuple(replace(one, num_workers=2) for one in setup.loaders))
    with_two = {one.name: one for one in controls(knobs.KNOBS, two, known=True)}
    assert with_two["persistent_workers"] == kept, "the number of workers changes nothing of what is sent"


def test_the_knobs_are_evaluated_once_a_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Setup] = []
    once = 0
    knob = next(iter(knobs.KNOBS.values()))
    monkeypatch.setattr(type(knob), "found", lambda self, setup: asked.append(setup))
    table, recent = {knob.name: knob}, Memory().controls
    for looked_at in (1, 2, 3):  # a fact that moves on while the loop runs
        setup = replace(starved().setup, inputs=InputFacts(looked_at=looked_at))
        controls(table, setup, known=True, recent=recent)
        once = once or len(asked)
    assert len(asked) == once > 0
    controls(table, replace(setup, device="cuda:0"), known=True, recent=recent)
    assert len(asked) == 2 * once


def test_what_the_diagnosis_notes_stands_in_the_footer_while_the_run_goes_on() -> None:
    recording = starved(source="# gpudoctor: ignore slow-pyton")
    live = PanelInput(status="recording", setup=recording.setup, diagnosis=diagnose(recording))
    (note,) = drawn(live)["footer"]["notes"]
    assert "slow-pyton. Did you mean slow-python?" in note


def test_hostile_names_and_figures_survive_as_text() -> None:
    recording = starved(name="<img src=x onerror=alert(1)>\u202e", reason="\x00<b>")
    wall = recording.steps.wall_s.copy()
    wall[3] = np.nan
    notes = tuple(f"note {number} </script>" for number in range(40))
    found = drawn(shown(recording, notes=notes, message="x" * 5000))
    assert len(found["footer"]["notes"]) == 13
    assert len(found["message"]) <= 600


# ---- what a page may ask for --------------------------------------------------------------------------------------


def test_a_request_is_taken_in_its_form() -> None:
    request = {"ask": "trial", "settings": {"num_workers": 4, "pin_memory": True}, "steps": 20, "seconds": 90}
    assert checked_request(request, knobs.KNOBS) == {**request, "changes_training": False, "allow": ()}
    assert checked_request({"ask": "treat", "allow": ["network"]}, knobs.KNOBS)["allow"] == ("network",)
    stop = checked_request({"ask": "stop"}, knobs.KNOBS)
    assert (stop["steps"], stop["seconds"]) == (None, None)  # the case has its own


@pytest.mark.parametrize(
    "content",
    [
        *(None, [], {}, {"ask": "eval"}),
        *({"ask": "trial", "settings": one} for one in ([1], {"__class__": 1}, {"num_workers": {"a": 1}})),
        *({"ask": "trial", "settings": {"num_workers": one}} for one in ("many", -1)),
        {"ask": "trial", "settings": {"amp": "int3"}},
        *({"ask": "trial", "allow": one} for one in ("network", ["everything"])),
        *({"ask": "trial", "steps": one} for one in (0, True, 1e9, "50")),
        *({"ask": "trial", "seconds": one} for one in (0, -1, True, "60", 1e9, float("nan"), [5])),
    ],
)
def test_a_request_out_of_form_is_answered_in_one_sentence(content: Any) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        checked_request(content, knobs.KNOBS)


def test_the_colour_beside_the_verdict_is_that_of_its_cause() -> None:
    compute = starved(wait_s=0.0001)
    verdict = drawn(shown(compute))["verdict"]
    assert verdict["advice"] is None and verdict["kind"] == "compute-bound"
    half = drawn(shown(starved(wait_s=0.0065)))["verdict"]
    assert "waits for data" in half["text"] and half["accent"] == PHASE_COLOURS["data_wait"]
    assert verdict["accent"] not in (half["accent"], "")
