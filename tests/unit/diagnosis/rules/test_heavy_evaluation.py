"""heavy-evaluation: passes over validation data between the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LoaderSetup
from tests.support.found import asked, named, rule, sick, top
from tests.support.recordings import Loop, line

RULE = "heavy-evaluation"
ROLLOUTS = Loop(evaluation=10.0)
LOADERS = (LoaderSetup("train", batches=20), LoaderSetup("val", role="evaluation", batches=5))
OFTEN = ROLLOUTS.but(setup={"loaders": LOADERS})


def test_sick() -> None:
    found = sick(RULE, OFTEN)
    assert found.cost_share == pytest.approx(0.5)
    cure = found.prescriptions[0]
    assert cure.predicted_speedup == pytest.approx(1 / 0.75) and cure.safety.value == "by-hand"
    assert top(OFTEN) == RULE


def test_a_loop_of_one_epoch_is_told_in_steps() -> None:
    assert "step % 500 == 0" in sick(RULE, OFTEN.but(steps_per_epoch=1000)).prescriptions[0].code


def test_it_names_the_lines() -> None:
    found = sick(RULE, OFTEN.but(lines=(line("evaluate(model)", 0.5, "evaluation"),)))
    assert any("evaluate(model)" in one for one in found.evidence)


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(evaluation=1.0)) is None


def test_evaluation_is_not_blamed_on_the_loader() -> None:
    assert named(OFTEN) == [RULE]


def test_passes_that_no_loader_fed_may_be_rollouts() -> None:
    """As judged on Stable-Baselines3 PPO: "evaluate half as often" would have halved the training's data."""
    found = sick(RULE, ROLLOUTS)
    assert found.cost_share == pytest.approx(0.5)
    assert "rollouts" in found.headline and not found.headline.startswith("Evaluation takes")
    assert all(one.predicted_speedup is None for one in found.prescriptions)
    assert not any("half" in one.text for one in found.prescriptions)
    assert top(ROLLOUTS) == RULE


def test_a_line_is_named_once() -> None:
    """As judged: `model.learn(4096)` stood there twice, for what computed in torch and what did not."""
    learn = line("model.learn(4096)", 0.2, "evaluation")
    found = sick(RULE, ROLLOUTS.but(lines=(replace(learn, share=0.3, in_torch=True), learn)))
    assert [one for one in found.evidence if "learn(4096)" in one] == [
        "50 % at cell line 7 in <module>: model.learn(4096)"
    ]


def test_a_second_forward_each_step_is_told_to_use_what_training_has_made() -> None:
    first, second, *_ = sick(RULE, ROLLOUTS).prescriptions
    assert "outputs that training has computed" in first.text
    assert "step % 500" in second.code
    played = sick(
        RULE, ROLLOUTS.but(has_loader=False)
    ).prescriptions  # nothing but the loop knows where these come from
    assert not any("outputs that training" in one.text for one in played)


def test_passes_now_and_then_are_not() -> None:
    recording = ROLLOUTS.but(steps_per_epoch=20).recording()
    now_and_then = np.where(np.arange(len(recording.steps)) % 10 == 0, recording.steps.evaluation_s, 0.0)
    vitals = measure(replace(recording, steps=replace(recording.steps, evaluation_s=10.0 * now_and_then)))
    assert vitals.evaluated_steps_share == pytest.approx(0.1)
    found = rule(RULE).finds(vitals)
    assert found is not None
    fed = rule(RULE).finds(replace(vitals, setup=replace(vitals.setup, loaders=LOADERS)))
    assert fed is not None and "epoch % 2" in fed.prescriptions[0].code
    assert "epoch % 2" in found.prescriptions[0].code and "evaluation: do it less often" in found.prescriptions[0].text
