"""evaluation: what is advised for passes that no loader fed, and how often passes come."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.found import sick
from tests.support.recordings import with_columns
from tests.support.rule_loops.compute import NOW_AND_THEN, ROLLOUTS


def test_a_second_forward_each_step_can_use_outputs_of_training_only_where_a_loader_feeds_it() -> None:
    fed, played = (sick("heavy-evaluation", ROLLOUTS.but(has_loader=one)).prescriptions for one in (True, False))
    assert [one.text for one in played] == [one.text for one in fed[1:]]


def test_passes_now_and_then_are_counted() -> None:
    recording = with_columns(ROLLOUTS.but(steps_per_epoch=20), evaluation_s=NOW_AND_THEN)
    assert measure(recording).evaluated_steps_share == pytest.approx(0.1)
