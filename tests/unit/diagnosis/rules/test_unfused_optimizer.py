"""unfused-optimizer: an optimizer that takes a large part of the step and could be one kernel, or is in many groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import OptimizerFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "unfused-optimizer"
ADAM = OptimizerFacts("AdamW", tensors=200, elements=2_000_000, can_fuse=True, groups=2)
SLOW = Loop(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})


def loop(*facts: OptimizerFacts, **changes: float) -> Loop:
    return SLOW.but(setup={"optimizer_facts": facts}, **changes)


def test_sick() -> None:
    found = sick(RULE, SLOW)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.4)
    (cure,) = found.prescriptions
    assert cure.settings == {"fused_optimizer": True} and cure.safety.value == "safe"
    assert cure.code == "torch.optim.AdamW(model.parameters(), lr=..., fused=True)"
    assert cure.predicted_speedup is None, "a trial tells"
    assert top(SLOW) == RULE


@pytest.mark.parametrize(
    "of",
    [
        Loop(),
        loop(replace(ADAM, fused=True)),
        loop(ADAM, optimizer=0.5),
        loop(replace(ADAM, name="RMSprop", can_fuse=False)),
        loop(replace(ADAM, fused=True, groups=40)),
        loop(replace(ADAM, fused=True, groups=None)),
        loop(replace(ADAM, name="SGD", tensors=4)),
    ],
    ids=["nobody looked", "fused", "a twentieth", "cannot be fused", "some groups", "an old recording", "plain SGD"],
)
def test_well(of: Loop) -> None:
    assert asked(RULE, of) is None


@pytest.mark.parametrize("one", [replace(ADAM, name="SGD"), replace(ADAM, name="SGD", tensors=4, momentum=True)])
def test_many_tensors_or_momentum_make_many_operations_of_sgd(one: OptimizerFacts) -> None:
    assert sick(RULE, loop(one)).cost_share == pytest.approx(0.4)


def test_only_the_slow_one_of_two_optimizers_is_priced() -> None:
    assert sick(RULE, loop(ADAM, replace(ADAM, fused=True))).cost_share == pytest.approx(0.2)
    assert sick(RULE, loop(ADAM, ADAM)).cost_share == pytest.approx(0.4)


@pytest.mark.parametrize("fused", [None, True])
def test_hundreds_of_groups_are_named_since_nothing_is_fused_across_them(fused: bool | None) -> None:
    found = sick(RULE, loop(replace(ADAM, groups=200, fused=fused)))
    assert "200 parameter groups" in found.headline and found.cost_share == pytest.approx(0.4)
    together, each = found.prescriptions
    assert "one group" in together.text and not together.settings
    assert bool(each.settings) is (fused is None)
    compile(together.code, RULE, "exec")


def told(host_optimizer: float, device_optimizer: float, **changes: float) -> Recording:
    """A loop on a GPU of which both clocks told the optimizer's ms, of 10 each."""
    rest = 10.0 - host_optimizer
    of = on_gpu(forward=rest / 2, backward=rest / 2, optimizer=host_optimizer, setup={"optimizer_facts": (ADAM,)})
    recording = of.but(**changes).recording()
    work = 9.95 - device_optimizer
    columns = {"gpu_forward_s": work / 3, "gpu_backward_s": work * 2 / 3, "gpu_optimizer_s": device_optimizer}
    steps = replace(recording.steps, **{name: np.full(len(recording.steps), ms * 1e-3) for name, ms in columns.items()})
    return replace(recording, steps=steps)


def test_where_the_gpu_is_the_limit_its_own_clock_decides() -> None:
    found = sick(RULE, told(0.5, 4.0))
    assert found.cost_share == pytest.approx(0.4, rel=0.01) and "GPU's time" in found.headline
    assert asked(RULE, told(4.0, 0.5)) is None, "the host's seconds are hidden behind the queue"


def test_where_launches_limit_the_hosts_clock_decides() -> None:
    assert sick(RULE, told(4.0, 0.5, caught_up=1.0)).cost_share == pytest.approx(0.4, rel=0.01)
    assert asked(RULE, told(0.5, 4.0, caught_up=1.0)) is None
