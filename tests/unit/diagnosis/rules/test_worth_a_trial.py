"""worth-a-trial: a hint is no answer, and is tried where changes of the training are allowed."""

from __future__ import annotations

from gpu_doctor.diagnosis import Safety, diagnose
from gpu_doctor.trials.candidates import moves
from tests.support.rule_loops.compute import FLOAT32


def test_a_hint_is_no_answer() -> None:
    alone = diagnose(FLOAT32.recording())
    assert not alone.findings and [one.rule for one in alone.hints] == ["full-precision"]
    assert "100 %" in alone.verdict and alone.hints[0].headline not in alone.verdict
    syncing = diagnose(FLOAT32.but(sync=8.0, syncs=1.0, gpu_gap=4.0, gpu_work=14.0).recording())
    assert [one.rule for one in syncing.findings] == ["host-sync"] and syncing.hints[0].rule == "full-precision"
    assert syncing.verdict == syncing.findings[0].headline


def test_a_hint_is_tried_where_changes_of_the_training_are_allowed() -> None:
    found = diagnose(FLOAT32.recording())
    assert {"amp": "bf16"} in [one.settings for one in moves(found, {Safety.SAFE, Safety.CHANGES_TRAINING}, {}, ())]
    assert {"amp": "bf16"} not in [one.settings for one in moves(found, {Safety.SAFE}, {}, ())]
