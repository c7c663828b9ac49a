"""How sure a prediction is, is said alike in the terminal, in HTML, as plain data and on the panel's card."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules.rule import Prescription, Safety
from gpu_doctor.report.panel_parts import prescription
from gpu_doctor.report.words import NO_FORECAST, predicted_words
from tests.support.trouble import laid
from tests.support.troubles import TROUBLES

WORK_THAT_GOES = ("slow-python", "host-sync", "checkpoint-stall", "garbage-collected-each-step", "device-round-trips")
NOT_TO_BE_KNOWN = ("full-precision", "cudnn-not-tuned", "channels-first-convolutions")


def diagnosed(rule: str, gpu: bool = True) -> Diagnosis:
    """A loop whose first finding is of this rule."""
    return diagnose(laid(next(one for one in TROUBLES if one.rule == rule and one.gpu == gpu)))


def first(diagnosis: Diagnosis) -> Prescription:
    return diagnosis.findings[0].prescriptions[0]


def everywhere(diagnosis: Diagnosis) -> list[str]:
    """What each reader is told of the first finding's first prescription."""
    said = predicted_words(first(diagnosis))
    words = [
        " ".join(str(diagnosis).split()),
        diagnosis._repr_html_(),
        prescription(first(diagnosis)).predicted,
    ]
    assert all(said in one for one in words)
    return words


@pytest.mark.parametrize("rule", WORK_THAT_GOES)
def test_work_that_is_taken_out_gains_at_most_so_much(rule: str) -> None:
    diagnosis = diagnosed(rule)
    assert all("at most" in one for one in everywhere(diagnosis))
    assert diagnosis.to_dict()["findings"][0]["prescriptions"][0]["at_most"] is True


def test_on_a_cpu_the_rest_gets_warmer_and_both_figures_are_said() -> None:
    diagnosis = diagnosed("slow-python", gpu=False)
    cure = first(diagnosis)
    assert cure.predicted_speedup is not None and cure.predicted_high is not None
    assert cure.predicted_speedup < cure.predicted_high
    assert all("if all of it is saved, at most" in one for one in everywhere(diagnosis))


@pytest.mark.parametrize("rule", NOT_TO_BE_KNOWN)
def test_what_no_recording_tells_is_to_be_measured(rule: str) -> None:
    diagnosis = diagnosed(rule)
    assert first(diagnosis).settings, "and the trial is offered"
    assert all(NO_FORECAST in one for one in everywhere(diagnosis))


def test_a_forecast_has_its_range_and_no_bound() -> None:
    one = Prescription("Load with 4 workers", Safety.SAFE, {"num_workers": 4}, "", 2.9, 2.6, 3.1)
    assert predicted_words(one) == "predicted 2.9x (2.6-3.1)"


def test_what_is_done_by_hand_and_not_known_promises_nothing() -> None:
    assert predicted_words(Prescription("Look", Safety.BY_HAND)) == ""
