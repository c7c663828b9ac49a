"""heavy-evaluation: passes over validation data between the steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from found import asked, named, sick, top
from recordings import Loop, line

from gpu_doctor.recording import LoaderSetup

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
