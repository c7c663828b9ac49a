"""per-sample-forward: as many forwards as samples or bags; told from cells that unroll time and from small batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "per-sample-forward"
ONE = InputFacts(looked_at=80, shapes=1, shape=(784,), dtype="float32", device="cpu", per_step=32.0, most_per_step=40)
SINGLE = Loop(batch=32, setup={"inputs": ONE})


def given(**changes: Any) -> Loop:
    """The loop whose model is handed something else."""
    return SINGLE.but(setup={"inputs": replace(ONE, **changes)})


def test_sick() -> None:
    found = sick(RULE, SINGLE)
    assert found.kind == "at-most"
    assert found.cost_share == pytest.approx(0.8 * 31 / 32), "forward and backward are 8 of 10 ms"
    assert any(one.startswith("32 forward passes") and "32 samples" in one and "(784)" in one for one in found.evidence)
    compile(found.prescriptions[0].code, RULE, "exec")
    assert named(SINGLE) == [RULE]
    assert asked(RULE, given(shape=(1, 784))) is not None
    large = SINGLE.but(batch=256, setup={"inputs": replace(ONE, per_step=40.0)})  # no more of a step were looked at
    assert any("40 or more forward passes" in one for one in sick(RULE, large).evidence)


@pytest.mark.parametrize("shapes", [1, 30])
@pytest.mark.parametrize("instances", [12, 32, 200])
def test_a_model_that_is_called_bag_by_bag(instances: int, shapes: int) -> None:
    """Bags of instances, as in multiple-instance learning: one call takes the instances of all of them."""
    bags = given(shape=(instances, 64), shapes=shapes)
    if instances == 32 and shapes == 1:
        assert asked(RULE, bags) is None, "as likely whole batches, one for each time step"
    else:
        (cure,) = sick(RULE, bags).prescriptions
        assert "torch.cat(batch)" in cure.code and "split(sizes)" in cure.code
        compile(cure.code, RULE, "exec")


def test_samples_of_different_sizes_are_to_be_padded() -> None:
    assert "padded" in sick(RULE, given(shapes=30)).prescriptions[0].text
    assert "padded" not in sick(RULE, SINGLE).prescriptions[0].text


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        (given(per_step=1.0, shape=(32, 784)), "one call a batch"),
        (given(shape=(32, 16)), "a cell that is called for 32 steps of time"),
        (given(per_step=38.0), "more calls than samples"),
        (given(per_step=4.0), "a few"),
        (given(per_step=None), "an older recording"),
        (SINGLE.but(batch=4, setup={"inputs": replace(ONE, per_step=4.0)}), "a small batch"),
        (SINGLE.but(wait=200.0), "what does it matter"),
        (SINGLE.but(has_loader=False), "one environment: each action needs the state before"),
    ],
)
def test_well(loop: Loop, why: str) -> None:
    assert asked(RULE, loop) is None, why


def test_on_a_gpu_the_device_s_own_seconds_count() -> None:
    loop = on_gpu(batch=32, setup={"inputs": ONE})
    assert asked(RULE, loop) is None, "a busy queue of which the phases were not read"
    starved = loop.but(caught_up=1.0, gpu_util=25.0, other=10.0, gpu_gap=10.0, gpu_work=10.0)
    assert sick(RULE, starved).cost_share == pytest.approx(0.5 * 31 / 32)
