"""per-sample-forward: as many forwards as samples; told from cells that unroll time and from small batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.recording.setup import InputFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "per-sample-forward"
ONE = InputFacts(looked_at=80, shapes=1, shape=(784,), dtype="float32", device="cpu", per_step=32.0, most_per_step=40)
SINGLE = Loop(batch=32, setup={"inputs": ONE})


def given(**changes: object) -> Loop:
    """The loop whose model is handed something else."""
    return SINGLE.but(setup={"inputs": replace(ONE, **changes)})  # type: ignore[arg-type]


def test_sick() -> None:
    found = sick(RULE, SINGLE)
    assert found.cost_share == pytest.approx(0.8 * 31 / 32), "forward and backward are 8 of 10 ms"
    assert any(one.startswith("32 forward passes") and "32 samples" in one and "(784)" in one for one in found.evidence)
    compile(found.prescriptions[0].code, RULE, "exec")
    assert found.prescriptions[0].predicted_speedup is None, "how much dearer a call for all is, nobody measured"
    assert named(SINGLE) == [RULE]
    assert asked(RULE, given(shape=(1, 784))) is not None
    large = SINGLE.but(batch=256, setup={"inputs": replace(ONE, per_step=40.0)})  # no more of a step were looked at
    assert any("40 or more forward passes" in one for one in sick(RULE, large).evidence)


def test_samples_of_different_sizes_are_to_be_padded() -> None:
    assert "padded" in sick(RULE, given(shapes=30)).prescriptions[0].text
    assert "padded" not in sick(RULE, SINGLE).prescriptions[0].text


def test_well() -> None:
    assert asked(RULE, given(per_step=1.0, shape=(32, 784))) is None
    assert asked(RULE, given(shape=(32, 16))) is None, "a cell that is called for 32 steps of time"
    assert asked(RULE, given(per_step=4.0)) is None
    assert asked(RULE, given(per_step=None)) is None, "an older recording"
    assert asked(RULE, SINGLE.but(batch=4, setup={"inputs": replace(ONE, per_step=4.0)})) is None
    assert asked(RULE, SINGLE.but(wait=200.0)) is None, "what does it matter"
    assert asked(RULE, SINGLE.but(has_loader=False)) is None, "nobody knows what a batch is"


def test_on_a_gpu_the_device_s_own_seconds_count() -> None:
    loop = on_gpu(batch=32, setup={"inputs": ONE})
    assert asked(RULE, loop) is None, "a busy queue of which the phases were not read"
    starved = loop.but(caught_up=1.0, gpu_util=25.0, other=10.0, gpu_gap=10.0, gpu_work=10.0)
    assert sick(RULE, starved).cost_share == pytest.approx(0.5 * 31 / 32)


ROLLED = InputFacts(looked_at=40, shapes=1, shape=(1, 24), dtype="float32", device="cpu")
CALL = replace(line("h = self.body(x)", 0.4), phase="forward", in_torch=True, one_by_one="<cell>:4")
SAMPLED = replace(line("a = torch.multinomial(p, 1)", 0.2), one_by_one="<cell>:4")
STEPPED = replace(line("self.state = 0.9 * self.state", 0.1), one_by_one="<cell>:6")
BATCHES = InputFacts(looked_at=3, shapes=1, shape=(512, 24), dtype="float32", device="cpu", per_step=1.0)
PLAYS = Loop(
    batch=512,
    has_loader=False,
    forward=4.0,
    backward=2.0,
    other=3.0,
    lines=(CALL, SAMPLED, STEPPED),
    setup={"inputs": BATCHES, "idle_inputs": ROLLED},
)


def test_a_policy_that_is_asked_for_one_environment_after_the_other() -> None:
    found = sick(RULE, PLAYS)
    assert found.cost_share == pytest.approx((4 + 2) / 11 * 7 / 8), "the call and what is beside it, no environment"
    assert any("none of these calls needs" in one for one in found.evidence)
    compile(found.prescriptions[0].code, RULE, "exec")
    assert named(PLAYS)[0] == RULE, "of the Python in the loop what is left stands behind it"


def test_calls_that_must_come_in_turn_or_take_a_batch() -> None:
    needed = tuple(replace(one, one_by_one="") for one in PLAYS.lines)
    assert asked(RULE, PLAYS.but(lines=needed)) is None, "one environment: each action needs the state before"
    crops = replace(ROLLED, shape=(64, 3, 96, 96))
    assert asked(RULE, PLAYS.but(setup={"inputs": BATCHES, "idle_inputs": crops})) is None, "whole batches of crops"
    few = replace(ROLLED, looked_at=4)
    assert asked(RULE, PLAYS.but(setup={"inputs": BATCHES, "idle_inputs": few})) is None
    assert asked(RULE, PLAYS.but(lines=(SAMPLED, STEPPED))) is None, "nothing of it calls the model"
    ids = replace(ROLLED, shape=(1024,), dtype="int64")
    assert asked(RULE, PLAYS.but(setup={"inputs": BATCHES, "idle_inputs": ids})) is None, "a batch of indices"
