"""unfused-optimizer: an optimizer that takes a large part of the step and could be one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording.setup import OptimizerFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu, with_more

RULE = "unfused-optimizer"
ADAM = OptimizerFacts("AdamW", tensors=200, elements=2_000_000, can_fuse=True)
SLOW = Loop(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})


def loop(facts: OptimizerFacts, **changes: float) -> Loop:
    return SLOW.but(setup={"optimizer_facts": (facts,)}, **changes)


def test_sick() -> None:
    found = sick(RULE, SLOW)
    # A fused step: 200 tensors at 6 us, 2 million elements at 0.6 ns and the call, 2.44 ms; without 6.44 ms.
    usual = 6.44 / 2.44
    assert found.cost_share == pytest.approx(0.4 * (1 - 2 / usual))
    cure = found.prescriptions[0]
    assert cure.settings == {"fused_optimizer": True} and cure.safety.value == "safe"
    assert cure.code == "torch.optim.AdamW(model.parameters(), lr=..., fused=True)"
    by_its_seconds = 1 / (1 - 0.4 * (1 - 1 / usual))
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


def test_plain_sgd_with_large_tensors_gains_nothing() -> None:
    sgd = OptimizerFacts("SGD", tensors=12, elements=25_000_000, can_fuse=True)
    assert asked(RULE, loop(sgd)) is None
    assert sick(RULE, loop(replace(sgd, tensors=200, elements=200_000))).cost_share < sick(RULE, SLOW).cost_share


def test_only_the_share_of_the_slow_optimizer_is_priced() -> None:
    both = (ADAM, replace(ADAM, fused=True))
    found = sick(RULE, SLOW.but(setup={"optimizer_facts": both}))
    assert found.cost_share == pytest.approx(0.2 * (1 - 2 * 2.44 / 6.44))


def test_an_embedding_whose_temporary_tensors_are_given_back_each_time() -> None:
    # The clinic's adam-on-a-large-embedding: 7.4 ms a step, 0.65 ms fused, the loop 7.3x as fast.
    facts = OptimizerFacts("Adam", tensors=3, elements=1_313_000, can_fuse=True)
    slow = loop(facts, forward=0.1, backward=0.3, optimizer=7.6)
    cure = sick(RULE, slow).prescriptions[0]
    assert cure.predicted_speedup is not None and cure.predicted_low is not None and cure.predicted_high is not None
    assert cure.predicted_low < 7.3 < cure.predicted_high
    kept = loop(facts, forward=0.1, backward=0.3, optimizer=2.2)  # the allocator keeps them: a third of the time
    assert (sick(RULE, kept).prescriptions[0].predicted_speedup or 9.0) < 0.5 * cure.predicted_speedup


def test_several_steps_at_once_are_no_matter_of_fusing() -> None:
    often = sick(RULE, loop(ADAM, optimizer=100.0)).prescriptions[0].predicted_speedup
    assert often is not None and often < 10.0


def test_a_gpu_with_a_full_queue_hides_the_host_and_an_empty_one_gets_no_figure() -> None:
    on_device = on_gpu(forward=3.0, backward=3.0, optimizer=4.0, setup={"optimizer_facts": (ADAM,)})
    assert asked(RULE, on_device) is None
    found = sick(RULE, on_device.but(queue_empty=1.0))
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
    found = sick(RULE, told(4.0, 0.5, queue_empty=1.0))
    assert found.cost_share == pytest.approx(0.4 / 2, rel=0.01) and "of the time" in found.headline
    assert asked(RULE, told(0.5, 4.0, queue_empty=1.0)) is None


def test_sgd_that_is_bound_by_the_gpu_s_memory_has_nothing_to_gain() -> None:
    sgd = {"optimizer_facts": (replace(ADAM, name="SGD"),)}
    assert asked(RULE, told(4.0, 4.0).but(setup=sgd)) is None


def test_a_handful_of_numbers_has_next_to_nothing_to_save() -> None:
    """As judged on gpytorch's ExactGP: 4 tensors of one number, 1.13x predicted, 1.05x or 0.97x in truth."""
    four = OptimizerFacts("Adam", tensors=4, elements=4, can_fuse=True)
    assert asked(RULE, loop(four, forward=0.5, backward=0.5, optimizer=0.2)) is None
    assert asked(RULE, loop(replace(four, name="SGD"), forward=0.5, backward=0.5, optimizer=0.2)) is None
    assert asked(RULE, loop(replace(four, elements=1_300_000), optimizer=4.0)) is not None, "its elements weigh"


def test_the_call_itself_is_not_saved() -> None:
    # 12 small tensors: 40 us of call and 240 us plain, 40 + 72 us fused.
    twelve = OptimizerFacts("Adam", tensors=12, elements=12, can_fuse=True)
    found = sick(RULE, loop(twelve, forward=0.2, backward=0.2, optimizer=0.28))
    theirs, usual = 0.28 / 0.68, 280 / 112
    assert found.cost_share == pytest.approx(theirs * (1 - 2 / usual), rel=0.01)
