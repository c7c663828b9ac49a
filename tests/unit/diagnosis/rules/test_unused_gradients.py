"""unused-gradients: the backward goes through layers that nothing trains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.recording.setup import ModelFacts
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "unused-gradients"
HEAD = ModelFacts({"cpu": 44 << 20}, unstepped=11_000_000, unstepped_place="layer4.0.conv1.weight", spared_share=1.0)
TUNING = Loop(forward=4.0, backward=8.0, optimizer=0.5, setup={"model": HEAD})


def test_sick() -> None:
    found = sick(RULE, TUNING)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(8 / 12.5)
    assert "layer4.0.conv1.weight" in found.evidence[0] and "11\u202f000\u202f000 weights" in found.evidence[0]
    (cure,) = found.prescriptions
    assert cure.safety.value == "by-hand" and "requires_grad_(False)" in cure.code
    assert top(TUNING) == RULE


def test_where_the_order_is_not_known_the_most_is_the_bound() -> None:
    facts = ModelFacts({"cpu": 44 << 20}, unstepped=11_000_000, unstepped_place="a", spared_share=0.8)
    assert sick(RULE, TUNING.but(setup={"model": facts})).cost_share == pytest.approx(0.8 * 8 / 12.5)


def test_on_a_gpu_it_is_the_devices_own_backward() -> None:
    loop = on_gpu(setup={"model": HEAD})
    assert asked(RULE, loop) is None, "nobody read the device's clock by phase"
    recording = loop.recording()
    steps = replace(recording.steps, gpu_backward_s=recording.steps.gpu_s * 0.6)
    assert sick(RULE, replace(recording, steps=steps)).cost_share == pytest.approx(0.6, abs=0.01)


def test_well() -> None:
    trained = ModelFacts({"cpu": 44 << 20}, unstepped=0)
    assert asked(RULE, TUNING.but(setup={"model": trained})) is None
    assert RULE not in named(TUNING.but(setup={"model": ModelFacts({"cpu": 44 << 20})}))  # nobody looked


def test_a_few_small_ones_are_not_worth_a_word() -> None:
    facts = ModelFacts({"cpu": 44 << 20}, unstepped=1000, unstepped_place="scale", spared_share=0.01)
    assert asked(RULE, TUNING.but(setup={"model": facts})) is None


def test_a_loop_that_reads_gradients_itself_is_left_alone() -> None:
    assert asked(RULE, TUNING.but(source="for p in backbone.parameters():\n    p.data -= 1e-3 * p.grad\n")) is None


def test_gradients_that_are_cleared_before_a_step_have_a_cure_of_their_own() -> None:
    facts = ModelFacts(
        {"cpu": 44 << 20}, unstepped=5000, unstepped_place="0.weight", spared_share=0.6, gradients_cleared=True
    )
    found = sick(RULE, TUNING.but(setup={"model": facts}))
    assert "cleared" in found.evidence[0] and "no_grad" in found.prescriptions[0].code
    assert "optimizer is created" not in found.prescriptions[0].text
