"""loss-by-hand: what a fused loss spares, by the labels that the loss is told; told from what has no fused form."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.diagnosis.rules.compute.loss_by_hand import GAINS
from gpu_doctor.recording.setup import LossByHand
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop

RULE = "loss-by-hand"
BY_HAND = ("softmax", "add", "log", "mul", "sum")
USUAL = GAINS[1]
WORDS = Loop(forward=4.0, backward=8.0, loss=6.0, optimizer=2.0)


def but(operations: tuple[str, ...], labels: str, rows: int = 384, classes: int = 8000, **changes: Any) -> Loop:
    return WORDS.but(setup={"loss_by_hand": LossByHand(operations, labels, rows, classes)}, **changes)


def test_sick() -> None:
    loop = but(BY_HAND, "one-hot", source="target = F.one_hot(y, V).float()")
    found = sick(RULE, loop)
    # 10 passes and 5 for the targets ahead, 8 back; fused 2 and 4.
    assert found.cost_share == pytest.approx(USUAL * 6 / 20 * (13 + 4) / 15)
    assert "8000 classes" in found.headline and "targets made" in found.evidence[1]
    (cure,) = found.prescriptions
    assert "F.cross_entropy" in cure.code and cure.predicted_speedup == pytest.approx(1.0 / (1.0 - found.cost_share))
    assert top(loop) == RULE


def test_targets_that_were_there_before_are_not_priced() -> None:
    assert sick(RULE, but(BY_HAND, "one-hot")).cost_share == pytest.approx(USUAL * 6 / 20 * (8 + 4) / 10)


def test_it_saves_no_more_than_it_takes() -> None:
    """Where memory is slow beside arithmetic all of it may go: 6 ms, and 8 of 10 passes of them in the backward."""
    (cure,) = sick(RULE, but(BY_HAND, "one-hot")).prescriptions
    assert cure.predicted_high == pytest.approx(1.0 / (1.0 - (6.0 + 4.8) / 20.0))
    (short,) = sick(RULE, but(BY_HAND, "one-hot").but(backward=0.5)).prescriptions
    assert short.predicted_high == pytest.approx(1.0 / (1.0 - 6.5 / 12.5)), "nor than the backward does"


def test_the_backward_gives_no_more_than_it_takes() -> None:
    short = but(BY_HAND, "one-hot").but(backward=0.5)
    assert sick(RULE, short).cost_share == pytest.approx(USUAL * (6 * 0.8 + 0.5) / 12.5)


def test_labels_smoothed_by_hand() -> None:
    found = sick(RULE, but(("log_softmax", "mul", "sum"), "smoothed"))
    assert found.cost_share == pytest.approx(USUAL * 6 / 20 * (3 - 1) / 6)
    assert "label_smoothing" in found.prescriptions[0].code


@pytest.mark.parametrize("labels", ["soft", ""])
def test_of_soft_targets_only_the_logarithm_is_spared(labels: str) -> None:
    found = sick(RULE, but(BY_HAND, labels))
    assert found.cost_share == pytest.approx(USUAL * 6 / 20 * (4 + 3) / 10)  # softmax, add and log: 6 ahead and 6 back
    assert "F.log_softmax" in found.prescriptions[0].code


@pytest.mark.parametrize("labels", ["soft", ""])
@pytest.mark.parametrize("operations", [("log_softmax", "mul", "sum"), ("log_softmax", "mul", "sub", "sum")])
def test_soft_targets_and_distillation_have_no_fused_form(operations: tuple[str, ...], labels: str) -> None:
    assert asked(RULE, but(operations, labels)) is None


def test_the_log_of_what_soft_targets_weigh_is_another_loss() -> None:
    mixed = ("softmax", "mul", "sum", "log of what was picked")
    assert asked(RULE, but(mixed, "soft")) is None
    assert asked(RULE, but(mixed, "one-hot")) is not None


def test_few_classes_stay_in_caches() -> None:
    assert asked(RULE, but(BY_HAND, "one-hot", rows=128, classes=10)) is None


def test_well() -> None:
    assert asked(RULE, WORDS) is None
    assert asked(RULE, but(BY_HAND, "one-hot").but(forward=200.0)) is None


def on_card(**changes: Any) -> Loop:
    return but(("softmax", "log", "gather"), "indices", gpu=True, **changes)


def test_a_gpu_without_times_of_its_phases_tells_nothing() -> None:
    assert asked(RULE, on_card()) is None
