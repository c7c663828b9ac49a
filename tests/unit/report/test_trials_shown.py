"""What panel and report show of trials and a treatment: losses, notes, the device, the waterfall, the changed cells."""

from __future__ import annotations

import base64
import json
import sys
import types
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from gpu_doctor.cell.fix import Fix
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.notebook import details
from gpu_doctor.notebook.actions import Actions
from gpu_doctor.notebook.details import MOST_FIXES, Details
from gpu_doctor.recording import Losses, Recording
from gpu_doctor.recording.steps import INFERENCE
from gpu_doctor.report import as_text as report
from gpu_doctor.report.contract import FixCell
from gpu_doctor.report.fix import MOST_LINES, fix_html, fix_shown
from gpu_doctor.report.losses import loss_lines
from gpu_doctor.report.panel import Notice, PanelInput, as_json, state
from gpu_doctor.report.plan import plan_html, plan_shown
from gpu_doctor.report.runs import rows
from gpu_doctor.report.sections import Reported
from gpu_doctor.report.trials import NO_GPU, TOO_SHORT, loss_story, notes_of, sides_of
from gpu_doctor.trials import PERMISSIONS, Case, knobs
from gpu_doctor.trials.compare.effect import Effect, compare
from gpu_doctor.trials.plan import Plan, Rung
from gpu_doctor.trials.reaching_out import reaching_out
from gpu_doctor.trials.said_before import Beforehand
from tests.support.html_page import HOSTILE, Page
from tests.support.recordings import losses
from tests.support.trial_parts import BOTH, CURED, WORKERS, WROTE, effects, fix, plan, side, treated, trials


def drawn(given: PanelInput) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(state(given, knobs.KNOBS), allow_nan=False))
    return found


# ---- which recordings belong to which trial -------------------------------------------------------------------------


def test_every_effect_finds_its_recordings_and_a_refused_one_has_none() -> None:
    pairs = trials()
    first, second, _ = effects(pairs)
    refused = Effect({"num_workers": 4}, {}, outcome="refused", reason="The state does not fit.")
    measured = (pairs[0][0], pairs[0][0])
    found = sides_of((refused, first, refused, second), (measured, *pairs))
    assert found == [None, pairs[0], None, pairs[1]]


def test_a_trial_refused_in_its_run_keeps_its_recordings() -> None:
    base = side()
    candidate = replace(side(settings=WORKERS), outcome="refused", reason="Nothing trains.")
    effect = Effect(WORKERS, {}, outcome="refused", reason="Nothing trains.")
    assert sides_of((effect,), ((base, candidate),)) == [(base, candidate)]


# ---- the loss -------------------------------------------------------------------------------------------------------


def test_the_loss_is_judged_in_words() -> None:
    pairs = trials()
    same, near, _ = effects(pairs)
    assert loss_story(same, pairs[0]).judgement == "Loss the same in every step."
    story = loss_story(near, pairs[1])
    assert story.judgement == "Loss within 0.2 %." and not story.warns
    assert loss_story(same, None).judgement == ""
    assert loss_story(same, pairs[0]).scaling == ""


def test_losses_that_differ_are_marked_in_words_picture_and_table() -> None:
    pairs = trials()
    apart = replace(pairs[0][1], losses=losses(factor=1.5))
    effect = compare([pairs[0][0]], [apart])
    story = loss_story(effect, (pairs[0][0], apart))
    assert story.warns and story.judgement == "Loss differs from step 1 on, by up to 50 %."
    assert "stroke-dasharray='1 2'" in loss_lines(pairs[0][0].losses, apart.losses, effect.loss_first_step)
    found = drawn(treated(effects=(effect,), trials=((pairs[0][0], apart),), plan=None))["table"]
    assert found["details"][1]["warns"]
    assert found["rows"][1][-1]["text"].endswith("⚠") and found["rows"][1][-1]["tone"] == "bad"
    assert "differs from step 1" in report.text(
        Reported(diagnose(pairs[0][0]), (), (effect,), trials=((pairs[0][0], apart),))
    )


def test_another_batch_is_compared_per_sample_with_a_word_on_the_learning_rate() -> None:
    base = side(settings={})
    steps = replace(base.steps, samples=np.full(50, 512.0))
    candidate = replace(base, steps=steps, settings={"batch_size": 512}, losses=losses(batch=512.0))
    effect = compare(base, candidate)
    assert "scale the learning rate with the batch (x4)" in str(effect) and effect.batch_ratio == 4.0
    predicting = [replace(one, steps=replace(one.steps, kind=np.full(50, INFERENCE))) for one in (base, candidate)]
    assert compare(*predicting).batch_ratio is None
    story = loss_story(effect, (base, candidate))
    assert "learning rate" in story.scaling and "x4" in story.scaling


def test_the_picture_is_well_formed_whatever_the_losses_are() -> None:
    broken = losses()
    value = broken.value.copy()
    value[20:] = np.nan
    cases = [
        (losses(), losses()),
        (losses(), losses(25, batch=256.0)),
        (losses(), replace(broken, value=value)),
        (losses(), replace(broken, value=np.full(50, 1e30))),
        (losses(), replace(broken, samples=np.full(50, np.nan))),
        (replace(broken, value=np.zeros(50)), replace(broken, value=np.zeros(50))),
        (losses(20_000), losses(20_000, 1.1)),
    ]
    for baseline, candidate in cases:
        svg = loss_lines(baseline, candidate)
        root = ElementTree.fromstring(svg)
        assert len([one for one in root.iter() if "stroke-linejoin" in one.attrib]) == 2
        assert "nan" not in svg and "inf" not in svg
        assert len(svg) < 12_000
    assert "l8 8m0-8l-8 8" in loss_lines(*cases[2]), "a cross where the loss breaks"
    assert loss_lines(losses(), Losses()) == ""
    assert loss_lines(losses(), losses(1)) == ""


# ---- the table ------------------------------------------------------------------------------------------------------


def test_a_trials_row_unfolds_its_losses_its_notes_and_its_code() -> None:
    table = drawn(treated())["table"]
    assert [one is None for one in table["details"]] == [True, False, False, False]
    first = table["details"][1]
    kind, _, data = first["losses"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    ElementTree.fromstring(base64.b64decode(data))
    assert WROTE in first["notes"]
    assert first["settings"] == WORKERS
    assert "predicted 2.9x (2.2-3.5)" in first["measured"] and "measured steps" in first["measured"]
    assert table["details"][3]["losses"] == "" and table["details"][3]["judged"] == []
    assert len(table["rows"]) == len(table["details"])


def test_the_device_column_is_read_from_the_trial() -> None:
    for gpu, name, said in ((True, "GPU", "24 %"), (False, "CPU", "40 %")):
        table = drawn(treated(gpu))["table"]
        at = table["head"].index(name)
        assert table["rows"][1][at]["text"].replace("\u00a0", " ") == said
        assert "baseline in this trial" in table["rows"][1][at]["title"]


def test_a_device_that_was_not_read_is_a_dash_that_says_why() -> None:
    pairs = tuple((replace(a, series=()), replace(b, series=())) for a, b in trials())
    table = drawn(treated(trials=pairs))["table"]
    cell = table["rows"][1][table["head"].index("GPU")]
    assert (cell["text"], cell["title"]) == ("-", TOO_SHORT)
    on_cpu = tuple((replace(a, series=()), replace(b, series=())) for a, b in trials(gpu=False))
    given = treated(trials=on_cpu)
    table = drawn(given)["table"]
    cell = table["rows"][1][table["head"].index("GPU")]
    assert (cell["text"], cell["title"]) == ("-", NO_GPU)


def test_notes_of_both_sides_are_said_once() -> None:
    base, candidate = trials()[0]
    effect = Effect(WORKERS)
    lost = replace(effect, not_restored=("it is lost",))
    assert notes_of(lost, (base, candidate), ()) == ("It is lost.", WROTE)
    assert notes_of(effect, (replace(base, notes=(WROTE, "b")), candidate), ()) == (WROTE, "b")
    assert notes_of(effect, None, ()) == ()


# ---- the treatment --------------------------------------------------------------------------------------------------


def test_the_waterfall_adds_up_and_names_what_was_dropped() -> None:
    found = drawn(treated())["plan"]
    assert [one["label"] for one in found["steps"]] == ["as written", "+ num_workers=4", "+ amp=bf16"]
    assert found["steps"][1]["gain"] == "x3.33 (2.9-3.6)"
    for before, after in zip(found["steps"], found["steps"][1:], strict=False):
        assert after["before"] == pytest.approx(before["before"] + before["added"], abs=2e-4)
    last = found["steps"][-1]
    assert last["before"] + last["added"] == pytest.approx(1.0, abs=1e-3)
    assert found["dropped"] == [{"label": "batch_size=4096", "why": "did not fit into memory: A batch of 2048 fitted."}]
    assert found["byHand"] == ["Decode images once and cache them."]
    assert found["settings"] == BOTH and found["fix"]["complete"]


def test_a_step_that_lost_shrinks_the_bar_and_all_together_is_no_further_step() -> None:
    rungs = (
        Rung("as written", {}, 1.0),
        Rung("a=1", {"a": 1}, 2.0, 2.0),
        Rung("b=1", {"b": 1}, 1.5, 0.75),
        Rung("all together", {"a": 1, "b": 1}, 1.8, 1.8, 1.7, 1.9, verified="as pasted"),
    )
    steps = plan_shown(plan((), waterfall=rungs)).steps
    assert steps[2].added < 0 and steps[2].before == pytest.approx(0.75)
    assert (steps[3].label, steps[3].before, steps[3].added, steps[3].whole) == ("all together", 0.0, 0.9, True)
    assert steps[3].gain == "verified (1.70-1.90)"


def test_a_loss_that_breaks_is_why_a_fast_setting_was_dropped() -> None:
    fast = Effect({"amp": "fp16"}, {}, 2.0, 1.9, 2.1, "faster", loss_drift=float("inf"))
    [one] = plan_shown(plan((fast,), waterfall=(), settings={})).dropped
    assert one.why.startswith("2.00x (1.9-2.1) faster, but") and "NaN" in one.why


def test_what_the_climb_says_is_shown() -> None:
    cure = plan((), notes=("Not all together.",))
    assert plan_shown(cure).notes == ("Not all together.",)
    assert "Not all together." in str(cure) and "Not all together." in plan_html(cure)


@pytest.mark.parametrize(
    ("speedup", "low", "high", "verdict", "shown"),
    [
        (1.0, 0.98, 1.02, "no-difference", "= no difference"),
        (1.04, 1.0, 1.08, "inconclusive", "≤ at most 1.08x"),
        (1.1, 0.9, 1.3, "inconclusive", "? inconclusive, at most 1.30x"),
        (1.5, 1.4, 1.6, "faster", "▲ faster"),
    ],
)
def test_a_row_says_the_verdict_or_the_bound(speedup: float, low: float, high: float, verdict: str, shown: str) -> None:
    row = rows((), (Effect(WORKERS, {}, speedup, low, high, verdict),))[0]
    assert row.cells[3].text.replace("\u00a0", " ").endswith(f") {shown}")


def test_a_treatment_without_a_gain_says_so() -> None:
    effect = Effect(WORKERS, {}, 1.0, 0.98, 1.02, "no-difference")
    kept_nothing = Plan({}, 1.0, (effect,), "")
    found = drawn(treated(plan=kept_nothing))["plan"]
    assert "stays as written" in found["sentence"] and found["fix"] is None and found["steps"] == []
    assert found["dropped"] == [{"label": "num_workers=4", "why": "1.00x (0.98-1.02) no difference"}]
    nothing = drawn(treated(plan=Plan({}, 1.0, (), "", reason="the loop is healthy.")))["plan"]
    assert nothing["sentence"] == "Nothing was tried: the loop is healthy."
    assert drawn(treated(plan=None))["plan"] is None


# ---- the static result ----------------------------------------------------------------------------------------------


def test_the_static_result_shows_the_same() -> None:
    given = treated()
    assert given.diagnosis is not None
    html = report.html(Reported(given.diagnosis, given.recordings, given.effects, trials=given.trials, plan=given.plan))
    page = Page(html)
    for said in (
        "+ num_workers=4",
        "x3.33 (2.9-3.6)",
        "Tried, not kept",
        "batch_size=4096",
        "Left to do by hand",
        WROTE,
    ):
        assert said in page.text
    assert "shuffle=True, num_workers=4)  # mine" in page.text, "the person's own line, changed"
    assert any(alt.startswith("Losses of trial 1") for alt in page.alts)
    assert "24 %" in page.text
    text = report.text(
        Reported(given.diagnosis, (given.recordings[0],), given.effects, trials=given.trials, plan=given.plan)
    )
    assert "Treatment: 4.13x faster" in text and "████" in text and WROTE in text
    assert "+                    batch_size=128, shuffle=True, num_workers=4)  # mine" in text
    without = report.html(Reported(given.diagnosis, given.recordings))
    assert "Treatment" not in without and "Trials" not in without


def test_hostile_text_is_escaped_in_the_static_result() -> None:
    def evil(one: Recording) -> Recording:
        return replace(one, notes=(HOSTILE,), settings={**one.settings, "amp": HOSTILE})

    pairs = tuple((evil(a), evil(b)) for a, b in trials())
    tried = tuple(
        replace(
            one,
            settings={**one.settings, "amp": HOSTILE},
            baseline_settings={"amp": HOSTILE},
            reason=HOSTILE,
            device=HOSTILE,
            elsewhere=True,
        )
        for one in effects(trials())
    )
    rungs = (Rung("as written", {}, 1.0), Rung(HOSTILE, {}, 2.0, 2.0))
    change = fix(HOSTILE, HOSTILE * 2, notes=(HOSTILE,), paste=HOSTILE)
    cure = plan(tried, fix=change, by_hand=(HOSTILE,), waterfall=rungs, settings={})
    for one in (cure, replace(cure, settings={"amp": HOSTILE}), replace(cure, effects=(), reason=HOSTILE)):
        page = Page(plan_html(one))
        assert "<script>" in page.text, "as text"
        str(one).encode("utf-8")
    recording = side()
    html = report.html(Reported(diagnose(recording), (recording,), tried, trials=pairs, plan=cure))
    Page(html)
    html.encode("utf-8")


# ---- what is worked out when it is unfolded -------------------------------------------------------------------------


class Asked:
    """A case that is asked for fixes."""

    def __init__(self, answer: Fix | Exception) -> None:
        self.answer = answer

    def beforehand(self) -> Beforehand:
        return Beforehand()

    def fix(self, settings: dict[str, Any]) -> Fix:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_fix_is_shown_as_lines_and_copied_to_the_letter() -> None:
    shown = fix_shown(fix(), BOTH)
    assert ("added", "+                    batch_size=128, shuffle=True, num_workers=4)  # mine") in shown.lines
    assert {kind for kind, _ in shown.lines} == {"head", "place", "same", "removed", "added"}
    assert shown.cells == (FixCell("this cell", CURED),)
    assert shown.complete and not shown.error
    (note,) = fix_shown(Fix(BOTH), BOTH).notes
    assert note.startswith("Nothing to change")
    half = fix_shown(fix("a = 1\n", "a = '\ud800'\n"), BOTH)
    json.dumps(as_json(half)).encode()
    assert half.cells[0].text.encode("utf-8")
    endless = fix_shown(fix("a\n", "\n".join(map(str, range(5000)))), BOTH)
    assert len(endless.lines) == MOST_LINES + 1
    more = endless.lines[-1][1]
    assert more.startswith("and 4") and fix_html(endless).count(f">{more}\n") == 1, "the diff"
    assert fix_html(endless).count(f"and {5000 - MOST_LINES:,} more lines".replace(",", "\u202f")) == 1, (
        "the whole cell"
    )


def test_a_fix_that_fails_is_one_sentence_and_few_are_stored() -> None:
    details = Details(Asked(ValueError("no place for it")).fix)
    details.fix({"num_workers": 2})
    assert details.fixes["num_workers=2"].error.endswith("into your cells: no place for it")
    details = Details(Asked(fix()).fix)
    for number in range(MOST_FIXES + 5):
        details.fix({"num_workers": number})
    assert len(details.fixes) == MOST_FIXES and "num_workers=20" in details.fixes
    details.fix(BOTH)
    assert details.fixes["num_workers=4, amp=bf16"].settings == BOTH


def test_before_the_click_it_is_said_what_cannot_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterators refuse, the copy has its size, large data is listed, trackers get nothing; in a sentence each."""
    namespace = {"it": (number for number in range(3)), "values": np.zeros(1000)}
    refused, kept = details.sentences(Case("next(it)", namespace))
    assert kept.text.startswith("A trial restores model, optimizer") and "copy of 8 KiB" in kept.text
    assert refused.tone == "bad" and "`it`" in refused.text
    assert len(details.sentences(Case("1", namespace))) == 1, "what the cell does not reach stays as it is"
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.BIG_DATA_BYTES", 1000)
    listed = details.sentences(Case("1", {"train": TensorDataset(torch.zeros(512))}))[1]
    named = "Large data is not copied: train (a tensor of 2 KiB); "
    assert listed == Notice(f"{named}changes to it are listed, not undone.", "")
    run = types.SimpleNamespace(disabled=False)
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=run))
    _, muted = details.sentences(Case("1", {}))
    assert muted.tone == "" and muted.text.startswith("A trial reports nothing to wandb.run (")


def test_before_the_click_a_refusal_and_what_is_done_again_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Beforehand(("The file log.csv is open: close it.",))
    monkeypatch.setattr("gpu_doctor.trials.beforehand.CHECKS", (lambda case: refused, reaching_out))
    case = Case("import requests\nrequests.post('http://x')", {})
    first, second, _ = details.sentences(case)
    assert first == Notice("A trial will be refused. The file log.csv is open: close it.", "bad")
    assert "requests.post in line 2" in second.text
    assert (second.tone, second.allow, second.tick) == ("bad", "network", PERMISSIONS["network"].tick)
    *_, last = case.beforehand(allow=("network",)).lost
    assert "requests.post in line 2" in last


def test_a_state_that_does_not_fit_is_said_before_the_click(monkeypatch: pytest.MonkeyPatch) -> None:
    little = types.SimpleNamespace(available=100, total=2**30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: little)
    [said] = details.sentences(Case("1", {"values": np.zeros(1000)}))
    assert said.tone == "bad" and "will be refused" in said.text and "8 KiB" in said.text


def test_looking_ahead_never_raises() -> None:
    unfolded = Details(Asked(fix()).fix, lambda: details.sentences(None))  # type: ignore[arg-type]
    unfolded.preview()
    assert unfolded.before is not None and unfolded.before[0].tone == "bad"


def test_unfolding_is_served_at_once_and_while_a_trial_waits() -> None:
    drawn_again: list[int] = []
    visit: Any = types.SimpleNamespace(
        details=Details(Asked(fix()).fix),
        redraw=lambda: drawn_again.append(1),
        message="",
    )
    actions = Actions(visit)
    actions._busy = True
    actions.take({"ask": "fix", "settings": BOTH})
    actions.take({"ask": "before", "settings": {}})
    assert "num_workers=4, amp=bf16" in visit.details.fixes and visit.details.before is None
    actions._busy = False
    actions.take({"ask": "before", "settings": {}})
    assert visit.details.before == () and len(drawn_again) == 2


def test_what_a_trial_touches_is_read_between_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[Any] = []
    loop = types.SimpleNamespace(add_callback=posted.append)
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(io_loop=loop))
    monkeypatch.setattr("gpu_doctor.notebook.actions.get_ipython", lambda: shell)
    visit: Any = types.SimpleNamespace(details=Details(Asked(fix()).fix), redraw=lambda: None, message="")
    Actions(visit).take({"ask": "before", "settings": {}})
    assert visit.details.before is None, "a cell may still be running"
    posted.pop()()
    assert visit.details.before == ()
