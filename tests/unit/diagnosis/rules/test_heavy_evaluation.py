"""heavy-evaluation: passes over validation data between the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LoaderSetup
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, line

RULE = "heavy-evaluation"
ROLLOUTS = Loop(evaluation=10.0)
LOADERS = (LoaderSetup("train", batches=20), LoaderSetup("val", role="evaluation", batches=5))
OFTEN = ROLLOUTS.but(setup={"loaders": LOADERS})


def test_sick() -> None:
    found = sick(RULE, OFTEN)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.5)
    cure = found.prescriptions[0]
    assert cure.predicted_speedup is None and cure.safety.value == "by-hand"
    assert named(OFTEN) == [RULE], "it is not blamed on the loader"


def test_a_loop_of_one_epoch_is_told_in_steps() -> None:
    assert "step % 500 == 0" in sick(RULE, OFTEN.but(steps_per_epoch=1000)).prescriptions[0].code


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(evaluation=2.0)) is None, "a sixth is usual"


def test_passes_that_no_loader_fed_may_be_rollouts() -> None:
    """As judged on Stable-Baselines3 PPO: "evaluate half as often" would have halved the training's data."""
    found = sick(RULE, ROLLOUTS)
    assert found.cost_share == pytest.approx(0.5)
    assert "rollouts" in found.headline and not found.headline.startswith("Evaluation takes")
    assert not any("half" in one.text for one in found.prescriptions)
    assert top(ROLLOUTS) == RULE


def test_a_line_is_named_once() -> None:
    """As judged: `model.learn(4096)` stood there twice, for what computed in torch and what did not."""
    learn = line("model.learn(4096)", 0.2, "evaluation")
    found = sick(RULE, ROLLOUTS.but(lines=(replace(learn, share=0.3, in_torch=True), learn)))
    assert len([one for one in found.evidence if "learn(4096)" in one and one.startswith("50 %")]) == 1


def test_a_second_forward_each_step_is_told_to_use_what_training_has_made() -> None:
    first, second, *_ = sick(RULE, ROLLOUTS).prescriptions
    assert "outputs that training has computed" in first.text
    assert "step % 500" in second.code
    played = sick(RULE, ROLLOUTS.but(has_loader=False)).prescriptions  # only the loop knows where these come from
    assert not any("outputs that training" in one.text for one in played)


def test_passes_now_and_then_are_not() -> None:
    recording = ROLLOUTS.but(steps_per_epoch=20).recording()
    now_and_then = np.where(np.arange(len(recording.steps)) % 10 == 0, recording.steps.evaluation_s, 0.0)
    recording = replace(recording, steps=replace(recording.steps, evaluation_s=10.0 * now_and_then))
    assert measure(recording).evaluated_steps_share == pytest.approx(0.1)
    fed = replace(recording, setup=replace(recording.setup, loaders=LOADERS))
    assert "epoch % 2" in sick(RULE, fed).prescriptions[0].code
    cure = sick(RULE, recording).prescriptions[0]
    assert "epoch % 2" in cure.code and "evaluation, run it less often" in cure.text
