"""unfused-optimizer: an optimizer that takes a large part of the step and could be one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording.setup import OptimizerFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu, with_more

RULE = "unfused-optimizer"
LONGER_S = (1.5e-3, 2.5e-3, 3e-3)
ADAM = OptimizerFacts("AdamW", tensors=200, elements=2_000_000, can_fuse=True, longer_s=LONGER_S)
SLOW = Loop(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})


def loop(facts: OptimizerFacts, **changes: float) -> Loop:
    return SLOW.but(setup={"optimizer_facts": (facts,)}, **changes)


def test_sick() -> None:
    found = sick(RULE, SLOW)
    assert found.cost_share == pytest.approx(0.15), "what it took longer at least, of 10 ms"
    cure = found.prescriptions[0]
    assert cure.settings == {"fused_optimizer": True} and cure.safety.value == "safe"
    assert cure.code == "torch.optim.AdamW(model.parameters(), lr=..., fused=True)"
    by_its_seconds = 1 / (1 - 0.25)
    assert cure.predicted_speedup is not None and cure.predicted_low and cure.predicted_high
    assert by_its_seconds < cure.predicted_speedup < 1.1 * by_its_seconds, "and the rest finds its caches as they were"
    assert cure.predicted_low < by_its_seconds < cure.predicted_high
    assert top(SLOW) == RULE


def test_well() -> None:
    assert asked(RULE, Loop()) is None  # nobody looked
    assert asked(RULE, loop(replace(ADAM, fused=True))) is None
    assert asked(RULE, loop(ADAM, optimizer=0.5)) is None


def test_an_optimizer_that_cannot_be_fused() -> None:
    assert asked(RULE, loop(replace(ADAM, name="RMSprop", can_fuse=False))) is None


def test_where_a_fused_step_takes_as_long_there_is_nothing_to_gain() -> None:
    assert asked(RULE, loop(replace(ADAM, name="SGD", longer_s=(0.0, 0.0, 2e-5)))) is None
    assert sick(RULE, loop(replace(ADAM, name="SGD", momentum=True))).cost_share > 0.1


def test_on_a_cpu_what_nobody_timed_is_not_guessed() -> None:
    assert asked(RULE, loop(replace(ADAM, longer_s=None))) is None


def test_only_the_slow_one_of_two_optimizers_is_priced() -> None:
    both = (replace(ADAM, longer_s=(3e-3, 3e-3, 3e-3)), replace(ADAM, fused=True, longer_s=None))
    found = sick(RULE, SLOW.but(setup={"optimizer_facts": both}))
    assert found.cost_share == pytest.approx(0.9 * 0.2), "it has half of the tensors, and a tenth of its time is left"
    twice = sick(RULE, SLOW.but(setup={"optimizer_facts": (ADAM, ADAM)}))
    assert twice.cost_share == pytest.approx(0.3)


def test_an_embedding_whose_temporary_tensors_are_given_back_each_time() -> None:
    # The clinic's adam-on-a-large-embedding: 7.4 ms a step, 0.65 ms fused, the loop 7.3x as fast.
    facts = OptimizerFacts("Adam", 3, 1_313_000, can_fuse=True, longer_s=(5.5e-3, 6.7e-3, 8e-3))
    slow = loop(facts, forward=0.1, backward=0.3, optimizer=7.6)
    cure = sick(RULE, slow).prescriptions[0]
    assert cure.predicted_speedup is not None and cure.predicted_low is not None and cure.predicted_high is not None
    assert cure.predicted_low < 7.3 < cure.predicted_high


def test_several_steps_at_once_are_no_matter_of_fusing() -> None:
    assert sick(RULE, loop(ADAM, optimizer=100.0)).cost_share < 0.03


def test_a_gpu_with_a_full_queue_hides_the_host_and_an_empty_one_gets_no_figure() -> None:
    on_device = on_gpu(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})
    assert asked(RULE, on_device) is None
    found = sick(RULE, on_device.but(caught_up=1.0))
    assert found.prescriptions[0].predicted_speedup is None


def told(host_optimizer: float, device_optimizer: float, **changes: float) -> Loop:
    """A loop on a GPU of which both clocks told the optimizer's ms, of 10 each."""
    rest = 10.0 - host_optimizer
    loop = on_gpu(forward=rest / 2, backward=rest / 2, optimizer=host_optimizer, setup={"optimizer_facts": (ADAM,)})
    recording = loop.but(**changes).recording()
    work = 9.95 - device_optimizer
    columns = {"gpu_forward_s": work / 3, "gpu_backward_s": work * 2 / 3, "gpu_optimizer_s": device_optimizer}
    steps = replace(recording.steps, **{name: np.full(len(recording.steps), ms * 1e-3) for name, ms in columns.items()})
    return with_more(loop.but(**changes), steps=steps)


def test_where_the_gpu_is_the_limit_its_own_clock_decides() -> None:
    found = sick(RULE, told(0.5, 4.0))
    assert found.cost_share == pytest.approx(0.4 / 2, rel=0.01)
    assert found.headline == "AdamW takes 40 % of the GPU's time and is not fused."
    assert asked(RULE, told(4.0, 0.5)) is None, "the host's seconds are hidden behind the queue"


def test_where_launches_limit_the_host_s_clock_decides() -> None:
    found = sick(RULE, told(4.0, 0.5, caught_up=1.0))
    assert found.cost_share == pytest.approx(0.4 / 2, rel=0.01) and "of the time" in found.headline
    assert asked(RULE, told(0.5, 4.0, caught_up=1.0)) is None


def test_sgd_that_is_bound_by_the_gpu_s_memory_has_nothing_to_gain() -> None:
    sgd = {"optimizer_facts": (replace(ADAM, name="SGD"),)}
    assert asked(RULE, told(4.0, 4.0).but(setup=sgd)) is None
