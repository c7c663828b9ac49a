"""eval-with-gradients: evaluation forwards record what nobody uses."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import EvaluationFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "eval-with-gradients"
IN_VAIN = EvaluationFacts(forwards=40, with_gradients=40)
OFTEN = Loop(evaluation=10.0, setup={"evaluation": IN_VAIN})


def test_sick() -> None:
    found = sick(RULE, OFTEN.but(lines=(line("outputs = model(x)", 0.5, "evaluation"),)))
    assert found.cost_share == pytest.approx(0.5 / 6)
    cure = found.prescriptions[0]
    assert "inference_mode" in cure.code and cure.safety.value == "by-hand"
    assert cure.predicted_speedup == pytest.approx(1 / (1 - 0.5 / 6)) and cure.predicted_low == 1.0
    assert any("outputs = model(x)" in one for one in found.evidence)
    assert named(OFTEN) == ["heavy-evaluation", RULE]


def test_an_inference_loop_is_all_evaluation() -> None:
    loop = Loop(forward=10.0, backward=0.0, optimizer=0.0, setup={"evaluation": IN_VAIN, "optimizers": ()})
    assert sick(RULE, loop).cost_share == pytest.approx(1 / 6)
    assert RULE in named(loop)


def test_a_pass_that_nothing_tells_from_training_is_what_its_backward_cannot_explain() -> None:
    # 8 ms of forward before 2.8 ms of backward: about 2 ms of it belong to training
    blind = Loop(forward=8.0, backward=2.8, optimizer=1.0, setup={"evaluation": IN_VAIN})
    assert sick(RULE, blind).cost_share == pytest.approx(6 / 11.8 / 6, rel=0.01)
    assert RULE in named(blind)
    slowed = blind.but(setup={"evaluation": IN_VAIN, "flags": {"anomaly_mode": True}})
    assert sick(RULE, slowed).cost_share == 0.0
    for backward in (3.2, 4.0, 8.0):  # plain loops have 0.8 to 2.4 times their forward
        assert RULE not in named(Loop(forward=4.0, backward=backward, setup={"evaluation": IN_VAIN}))


def test_well() -> None:
    assert asked(RULE, Loop(evaluation=10.0)) is None  # nobody looked
    assert asked(RULE, OFTEN.but(setup={"evaluation": EvaluationFacts(forwards=40, with_gradients=0)})) is None


def test_a_single_try_is_no_evaluation() -> None:
    assert asked(RULE, OFTEN.but(setup={"evaluation": EvaluationFacts(forwards=2, with_gradients=2)})) is None


def test_only_those_that_recorded_are_priced() -> None:
    half = EvaluationFacts(forwards=40, with_gradients=20)
    assert sick(RULE, OFTEN.but(setup={"evaluation": half})).cost_share == pytest.approx(0.25 / 6)


def test_little_evaluation_is_not_named() -> None:
    assert RULE not in named(OFTEN.but(evaluation=2.0))


def test_encoder_layers_also_lose_their_fused_path() -> None:
    attention = {"evaluation": IN_VAIN, "layers": {"NonDynamicallyQuantizableLinear": 2, "Linear": 4}}
    assert sick(RULE, OFTEN.but(setup=attention)).cost_share > sick(RULE, OFTEN).cost_share


def test_a_gpu_with_a_full_queue_does_not_wait_for_the_recording() -> None:
    assert asked(RULE, on_gpu(evaluation=10.0, setup={"evaluation": IN_VAIN})) is None
