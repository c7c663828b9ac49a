"""How a run stands, in the panel's words: waiting for steps, failed, interrupted; its name; a loop without a loader."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.notebook.plot_data import Layer
from gpu_doctor.notebook.widget import DoctorView
from gpu_doctor.recording import Recording, Replay
from gpu_doctor.report.panel import PanelInput, state
from gpu_doctor.trials import knobs
from tests.support.panel_parts import replaced, shown, starved

EVIL = "<b>x</b>"


def drawn(given: PanelInput) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(state(given, knobs.KNOBS), allow_nan=False))
    return found


def test_a_slow_loop_is_not_promised_a_verdict_in_five_seconds() -> None:
    few = starved(steps=3, wait_s=2.5)
    early = drawn(shown(few, status="recording", elapsed_s=2.5, step_count=1))["verdict"]["text"]
    assert early == "Listening to the loop: the verdict comes within 30 steps or 5 seconds."
    late = drawn(shown(few, status="recording", elapsed_s=7.5, step_count=3))["verdict"]["text"]
    assert late == "Listening to the loop: 3 of the 5 steps needed for a verdict are measured."
    none = shown(few, status="recording", elapsed_s=60.0, step_count=0, diagnosis=None)
    assert drawn(none)["verdict"]["text"] == "No training step yet: the verdict comes with the first ones."


@pytest.mark.parametrize(
    ("outcome", "says", "broken"),
    [
        ("completed", "finished", False),
        ("interrupted", "interrupted", False),
        ("stopped", "stopped", False),
        ("budget-reached", "budget reached", False),
        ("failed", "failed", True),
        ("out-of-memory", "did not fit into memory", True),
    ],
)
def test_the_header_says_how_the_run_ended(outcome: str, says: str, broken: bool) -> None:
    header = drawn(shown(starved(outcome=outcome)))["header"]
    assert (header["status"], header["failed"]) == (says, broken)
    going_on = drawn(shown(starved(outcome=outcome), status="trial"))["header"]
    assert (going_on["status"], going_on["failed"]) == ("trial", False)


def test_what_the_cell_raised_is_said_above_all_that_it_wrote() -> None:
    failed = starved(steps=3, outcome="failed", reason="ValueError: seven")
    assert drawn(shown(failed))["message"] == (
        "The cell raised ValueError: seven; the figures show the 3 steps before it."
    )
    assert drawn(shown(failed, message="Another."))["message"] == "Another."
    assert drawn(shown(starved()))["message"] == ""


def test_a_few_steps_are_called_neither_early_nor_bound_by_anything() -> None:
    """The sentence says already that they are too few."""
    few = drawn(shown(starved(steps=3)))["verdict"]
    assert (few["kind"], few["early"]) == ("", "")
    assert drawn(shown(starved(steps=12)))["verdict"]["early"] == "early: 11 measured steps"


def test_a_run_without_steps_has_no_anatomy_and_says_so() -> None:
    none = starved(steps=1)
    empty = replace(none, steps=none.steps.rows(0, 0), fetches=())
    assert drawn(shown(empty, diagnosis=diagnose(empty)))["anatomy"]["of"] == "no step was measured"
    assert drawn(PanelInput())["anatomy"]["of"] == "no step was measured yet"


def test_the_persons_own_name_of_the_run_stands_in_the_header() -> None:
    assert drawn(shown(starved(), name=f"with cache {EVIL}"))["header"]["name"] == f"with cache {EVIL}"
    assert drawn(shown(starved()))["header"]["name"] == ""


def test_a_loop_without_a_loader_has_no_line_of_waiting() -> None:
    """It waits for none: a line at zero would be a reading."""

    def lines(recording: Recording) -> set[str]:
        layer = Layer(Replay(recording))
        layer.read()
        return set(layer.lines)

    one = starved()
    assert {"wait", "step"} <= lines(one)
    by_hand = replace(one, steps=replaced(one.steps, data_wait_s=np.zeros(len(one.steps))))
    assert "step" in lines(by_hand) and "wait" not in lines(by_hand)


def test_where_no_widget_can_be_drawn_a_sentence_stands_for_the_panel() -> None:
    """As in a notebook turned into Markdown; not the address of an object."""
    view = DoctorView(lambda message: None)
    try:
        bundle = view._repr_mimebundle_() if hasattr(view, "_repr_mimebundle_") else ({"text/plain": repr(view)}, {})
        assert bundle is not None and "0x" not in bundle[0]["text/plain"]
        assert bundle[0]["text/plain"].startswith("GPU Doctor's live panel needs a running notebook")
    finally:
        view.close()


def test_what_is_said_of_a_choice_in_brackets_is_not_said_of_its_refusal() -> None:
    compiles = next(one for one in drawn(shown(starved(gpu=True)))["knobs"] if one["name"] == "compile")
    assert all("(" not in text.partition(":")[0] for text in compiles["partly"])
    assert any("(" in one["label"] for one in compiles["choices"])


def test_a_knob_that_was_set_for_the_first_run_is_not_called_as_written() -> None:
    """`--set num_workers=2` above a loader without workers: what is written was not seen yet."""
    turned = starved(workers=2, settings={"num_workers": 2})
    workers = drawn(shown(turned, turned=turned.settings))["knobs"][0]
    assert workers["name"] == "num_workers" and workers["written"] is None and not workers["refusal"]
    labels = [one["label"] for one in workers["choices"]]
    assert labels[-1] == "as written (not run yet)" and "2" in labels and "2 (as written)" not in labels
    assert drawn(shown(turned))["knobs"][0]["written"] == 2, "and as before where nothing was turned"
