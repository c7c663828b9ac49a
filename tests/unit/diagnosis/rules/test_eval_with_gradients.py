"""eval-with-gradients: evaluation forwards record what nobody uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording.setup import EvaluationFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "eval-with-gradients"
IN_VAIN = EvaluationFacts(forwards=40, with_gradients=40)
OFTEN = Loop(evaluation=10.0, setup={"evaluation": IN_VAIN})


def test_sick() -> None:
    found = sick(RULE, OFTEN.but(lines=(line("outputs = model(x)", 0.5, "evaluation"),)))
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.5)
    first, second = found.prescriptions
    assert "inference_mode" in first.code and "evaluate(" in second.code and first.predicted_speedup is None
    assert any("outputs = model(x)" in one for one in found.evidence)
    assert named(OFTEN) == [RULE], "its seconds are priced once"


def test_an_inference_loop_is_all_evaluation() -> None:
    loop = Loop(forward=10.0, backward=0.0, optimizer=0.0, setup={"evaluation": IN_VAIN, "optimizers": ()})
    assert sick(RULE, loop).cost_share == pytest.approx(1.0)
    assert RULE in named(loop)


@pytest.mark.parametrize(
    "facts",
    [None, EvaluationFacts(40, 0), EvaluationFacts(2, 2), EvaluationFacts(40, 10)],
    ids=["nobody looked", "none recorded", "a single try", "most did not"],
)
def test_well(facts: EvaluationFacts | None) -> None:
    loop = OFTEN.but(setup={"evaluation": facts})
    assert asked(RULE, loop) is None and named(loop) == ["heavy-evaluation"]


def test_only_those_that_recorded_are_priced() -> None:
    most = EvaluationFacts(forwards=40, with_gradients=30)
    assert sick(RULE, OFTEN.but(setup={"evaluation": most})).cost_share == pytest.approx(0.5 * 0.75)


def test_little_evaluation_is_not_named() -> None:
    assert RULE not in named(OFTEN.but(evaluation=0.4))


def test_a_gpu_with_a_full_queue_does_not_wait_for_the_recording() -> None:
    assert asked(RULE, on_gpu(evaluation=10.0, setup={"evaluation": IN_VAIN})) is None


def test_a_pass_that_nothing_tells_from_training_makes_the_forward_of_its_step_long() -> None:
    recording = Loop(setup={"evaluation": IN_VAIN}).recording()
    forward = recording.steps.forward_s.copy()
    extra = np.where(np.arange(len(forward)) % 10 == 5, 0.02, 0.0)
    steps = replace(recording.steps, forward_s=forward + extra, wall_s=recording.steps.wall_s + extra)
    found = sick(RULE, replace(recording, steps=steps))
    assert found.cost_share == pytest.approx(2 / 12, rel=0.1)
    assert asked(RULE, recording) is None, "each forward is like the others"
