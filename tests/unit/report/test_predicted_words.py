"""How sure a prediction is, is said alike in the terminal, in HTML, as plain data and on the panel's card."""

from __future__ import annotations

from gpu_doctor.diagnosis.rules.rule import Prescription, Safety
from gpu_doctor.diagnosis.words import NO_FORECAST, predicted_words
from gpu_doctor.report.panel_parts import prescription


def test_what_no_recording_tells_is_to_be_tried() -> None:
    one = Prescription("Compute in half precision", Safety.CHANGES_TRAINING, {"amp": "bf16"})
    assert predicted_words(one) == NO_FORECAST == prescription(one).predicted


def test_a_forecast_has_its_range_and_no_bound() -> None:
    one = Prescription("Load with 4 workers", Safety.SAFE, {"num_workers": 4}, "", 2.9, 2.6, 3.1)
    assert predicted_words(one) == "predicted 2.9x (2.6-3.1)"


def test_what_is_done_by_hand_and_not_known_promises_nothing() -> None:
    assert predicted_words(Prescription("Look", Safety.BY_HAND)) == ""
