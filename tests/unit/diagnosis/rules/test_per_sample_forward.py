"""per-sample-forward: as many forwards as samples; told from cells that unroll time and from small batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.recording.setup import InputFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "per-sample-forward"
ONE = InputFacts(looked_at=80, shapes=1, shape=(784,), dtype="float32", device="cpu", per_step=32.0, most_per_step=40)
SINGLE = Loop(batch=32, setup={"inputs": ONE})


def given(**changes: object) -> Loop:
    """The loop whose model is handed something else."""
    return SINGLE.but(setup={"inputs": replace(ONE, **changes)})  # type: ignore[arg-type]


def test_sick() -> None:
    found = sick(RULE, SINGLE)
    assert found.cost_share == pytest.approx(0.8 * 31 / 32), "forward and backward are 8 of 10 ms"
    assert "32 forward passes in a step of 32 samples, each with a tensor of shape (784)" in found.evidence
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
    starved = loop.but(queue_empty=1.0, gpu_util=50.0, other=10.0, gpu_work=19.95)
    assert sick(RULE, starved).cost_share == pytest.approx(0.5 * 31 / 32)
