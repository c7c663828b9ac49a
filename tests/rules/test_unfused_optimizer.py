"""unfused-optimizer: an optimizer that takes a large part of the step and could be one kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from found import asked, sick, top
from recordings import Loop, on_gpu

from gpu_doctor.facts import OptimizerFacts

RULE = "unfused-optimizer"
ADAM = OptimizerFacts("AdamW", tensors=200, elements=2_000_000, can_fuse=True)
SLOW = Loop(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})


def loop(facts: OptimizerFacts, **changes: float) -> Loop:
    return SLOW.but(setup={"optimizer_facts": (facts,)}, **changes)


def test_sick() -> None:
    found = sick(RULE, SLOW)
    assert found.cost_share == pytest.approx(0.4 * 0.5)
    cure = found.prescriptions[0]
    assert cure.settings == {"fused_optimizer": True} and cure.safety.value == "safe"
    assert cure.code == "torch.optim.AdamW(model.parameters(), lr=..., fused=True)"
    assert cure.predicted_speedup == pytest.approx(1 / (1 - 0.4 * 0.75))
    assert top(SLOW) == RULE


def test_well() -> None:
    assert asked(RULE, Loop()) is None  # nobody looked
    assert asked(RULE, loop(replace(ADAM, fused=True))) is None
    assert asked(RULE, loop(ADAM, optimizer=0.5)) is None


def test_an_optimizer_that_cannot_be_fused() -> None:
    assert asked(RULE, loop(replace(ADAM, name="RMSprop", can_fuse=False))) is None


def test_plain_sgd_with_large_tensors_gains_nothing() -> None:
    sgd = OptimizerFacts("SGD", tensors=12, elements=25_000_000, can_fuse=True)
    assert asked(RULE, loop(sgd)) is None
    assert sick(RULE, loop(replace(sgd, tensors=200, elements=200_000))).cost_share < sick(RULE, SLOW).cost_share


def test_only_the_share_of_the_slow_optimizer_is_priced() -> None:
    both = (ADAM, replace(ADAM, fused=True))
    found = sick(RULE, SLOW.but(setup={"optimizer_facts": both}))
    assert found.cost_share == pytest.approx(0.2 * 0.5)


def test_a_gpu_with_a_full_queue_hides_the_host_and_an_empty_one_gets_no_figure() -> None:
    on_device = on_gpu(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})
    assert asked(RULE, on_device) is None
    found = sick(RULE, on_device.but(queue_empty=1.0))
    assert found.prescriptions[0].predicted_speedup is None
