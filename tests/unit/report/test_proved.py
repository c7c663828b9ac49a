"""The first line tells what the trials proved, as far as it was measured, against the code as written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor import formatting
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report import as_text as report
from gpu_doctor.report.panel import state
from gpu_doctor.report.proved import proved
from gpu_doctor.report.runs import rows
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import AS_PASTED, BY_SETTINGS, Effect
from gpu_doctor.trials.plan import Plan
from tests.support.html_page import Page
from tests.support.panel_parts import shown
from tests.support.recordings import starved
from tests.support.trial_parts import BOTH, WORKERS, effects, plan, trials

FOUR = Effect(WORKERS, {}, 2.87, 2.71, 3.02, "faster", loss_verdict="same", loss_drift=0.0)


def text(*tried: Effect, **given: Any) -> str:
    found = proved(tried, **given)
    return "" if found is None else found.text


def test_the_only_trial_was_not_picked_and_is_verified() -> None:
    found = proved((FOUR,))
    assert found is not None
    assert found.text == "2.87x faster with num_workers=4, verified (2.7-3.0)"
    assert (found.more, found.warns, found.settings) == ("Loss the same in every step.", False, WORKERS)


def test_a_winner_among_several_is_not_verified_until_it_is_measured_again() -> None:
    two = replace(FOUR, settings={"num_workers": 2}, speedup=1.9, low=1.8, high=2.0)
    picked = text(two, FOUR)
    assert picked.startswith("2.87x faster with num_workers=4, the fastest of 2")
    assert picked.endswith("not measured again (2.7-3.0)") and "verified" not in picked
    again = replace(FOUR, speedup=2.7, low=2.6, high=2.8)
    assert text(two, FOUR, again) == "2.70x faster with num_workers=4, verified (2.60-2.80)", "the fresh figure"
    for how in (AS_PASTED, BY_SETTINGS):
        assert text(two, FOUR, replace(two, verified=how)) == "1.90x faster with num_workers=2, verified (1.80-2.00)"


def test_the_first_trial_of_a_treatment_is_not_verified_before_its_last() -> None:
    assert text(FOUR, picking=True).endswith("num_workers=4, not measured again (2.7-3.0)")
    climbing = state(shown(starved(), effects=(FOUR,), status="treating"), knobs.KNOBS)
    assert "not measured again" in climbing["result"]["text"]
    stopped = Plan(WORKERS, 2.87, (FOUR,), "")
    assert "not measured again" in text(FOUR, plan=stopped), "it was stopped after its first step"
    last = replace(FOUR, verified=BY_SETTINGS)
    done = Plan(WORKERS, 2.87, (FOUR, last), "", verified=BY_SETTINGS)
    assert "verified" in text(FOUR, last, plan=done)


def test_a_wide_interval_is_stated_by_its_nearer_end() -> None:
    wide = replace(FOUR, speedup=3.0, low=2.3, high=4.1)
    assert text(wide) == "At least 2.30x faster with num_workers=4, verified (2.30-4.1)"


@pytest.mark.parametrize(
    "effect",
    [
        replace(FOUR, verdict="inconclusive", low=None, high=None),
        replace(FOUR, verdict="no-difference"),
        replace(FOUR, outcome="stopped"),
        replace(FOUR, outcome="failed", speedup=None),
        replace(FOUR, baseline_settings={"amp": "bf16"}),
        replace(FOUR, loss_verdict="not-finite", loss_drift=float("inf")),
        replace(FOUR, loss_verdict="different", loss_drift=0.3, loss_first_step=2),
    ],
)
def test_what_is_not_clearly_faster_with_the_same_training_proves_nothing(effect: Effect) -> None:
    assert text(effect) == ""


def test_a_result_that_a_later_trial_does_not_confirm_is_gone() -> None:
    assert text(FOUR, replace(FOUR, verdict="no-difference", speedup=1.0, low=0.9, high=1.1)) == ""


def test_losses_that_differ_for_a_known_reason_are_shown_with_a_warning() -> None:
    changed = replace(FOUR, loss_verdict="different", loss_drift=0.3, loss_first_step=2, verified=BY_SETTINGS)
    kept = Plan(WORKERS, 2.87, (changed,), "", verified=BY_SETTINGS)
    found = proved((changed,), kept)
    assert found is not None and found.warns
    assert found.more.startswith("Loss differs from step 2 on, by up to 30 %.") and "again by settings." in found.more
    assert text(changed) == "" and text(changed, plan=replace(kept, settings={"amp": "bf16"})) == ""


def test_the_line_stands_before_the_verdict_everywhere() -> None:
    run = starved()
    given = shown(run, effects=(FOUR,))
    assert state(given, knobs.KNOBS)["result"]["text"] == text(FOUR)
    assert state(shown(run), knobs.KNOBS)["result"] is None
    diagnosis = diagnose(run)
    told, page = (
        report.text(Reported(diagnosis, (run,), (FOUR,))),
        Page(report.html(Reported(diagnosis, (run,), (FOUR,)))).text,
    )
    for one in (told, page):
        assert 0 < one.index(text(FOUR)) < one.index("The loop waits for data")
    assert "verified" not in report.text(Reported(diagnosis, (run,)))


# ---- one baseline in the table --------------------------------------------------------------------------------------


def test_a_step_of_a_climb_is_shown_against_the_code_as_written_with_its_own_gain_below() -> None:
    found = rows((starved(),), effects(trials()))
    first, second, third = (row.cells for row in found[1:])
    assert (first[3].text.replace("\u00a0", " "), first[3].small) == ("3.33x (2.9-3.6) ▲ faster", "")
    assert second[1].text == "num_workers=4, amp=bf16"
    assert second[3].text == formatting.factor(10 / 3 * 1.24) and second[3].tone == "good"
    assert second[3].small.replace("\u00a0", " ") == "x1.24 (1.18-1.31) over num_workers=4 ▲ faster"
    assert (second[4].text, second[4].title) == ("x1.20", "over num_workers=4")
    assert third[3].text.startswith("did not fit into memory") and third[3].small == ""
    for words in (
        report.text(Reported(diagnose(starved()), (starved(),), effects(trials()))),
        Page(report.html(Reported(diagnose(starved()), (starved(),), effects(trials())))).text,
    ):
        assert "x1.24 (1.18-1.31) over num_workers=4" in words.replace("\u00a0", " ")


def test_a_step_over_settings_that_were_never_tried_has_no_figure_against_the_code_as_written() -> None:
    step = Effect(BOTH, WORKERS, 1.24, 1.18, 1.31, "faster")
    cells = rows((), (step,))[0].cells
    assert cells[3].text == "-" and cells[3].small.startswith("x1.24")


def test_a_climb_of_many_steps_is_one_product() -> None:
    steps = [{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}]
    tried = [Effect(one, before, 2.0, 1.9, 2.1, "faster") for before, one in zip([{}, *steps], steps, strict=False)]
    assert [row.cells[3].text.partition(" ")[0].partition("\u00a0")[0] for row in rows((), tried)] == [
        "2.00x", "4.00x", "8.00x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "over"),
    [
        ("1.24x (1.18-1.31)", "x1.24 (1.18-1.31)"),
        ("at least 1.40x (1.40-2.9)", "at least x1.40 (1.40-2.9)"),
        ("1\u202f240x", "x1\u202f240"),
        ("-", "-"),
    ],
)
def test_a_gain_over_what_is_faster_already_is_written_apart(words: str, over: str) -> None:
    assert formatting.over(words) == over


def test_the_plan_and_the_table_write_a_gain_alike() -> None:
    tried = effects(trials())
    shown_plan = state(shown(starved(), effects=tried, trials=trials(), plan=plan(tried)), knobs.KNOBS)
    gains = [one["gain"] for one in shown_plan["plan"]["steps"]]
    small = shown_plan["table"]["rows"][2][3]["small"]
    assert small.startswith(gains[2])
