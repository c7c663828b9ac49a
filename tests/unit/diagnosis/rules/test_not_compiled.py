"""not-compiled: launches one by one, static shapes, no torch.compile."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import PINNED, Loop, on_gpu

RULE = "not-compiled"
INPUTS = InputFacts(looked_at=40, shapes=1, shape=(32, 128))
BARE = ModelFacts(device_bytes={"cuda:0": 1000})


def launching(model: ModelFacts = BARE, inputs: InputFacts = INPUTS, **changes: Any) -> Loop:
    setup = {"model": model, "inputs": inputs}
    return on_gpu(gpu_util=40.0, caught_up=1.0, tensor_active=0.0, peak_share=0.02, setup=setup).but(**changes)


def test_sick() -> None:
    found = sick(RULE, launching())
    assert found.kind == "at-most" and found.cost_share == pytest.approx(1.0, abs=0.01)
    compiling, larger = found.prescriptions
    assert compiling.settings == {"compile": True} and compiling.predicted_speedup is None
    assert larger.settings == {"batch_size": 128}
    assert "always 32 x 128" in found.evidence[0]
    assert named(launching()) == [RULE], "the small batch is the same symptom"


def test_a_last_batch_is_no_change() -> None:
    assert sick(RULE, launching(inputs=InputFacts(looked_at=40, shapes=2, shape=(32, 128))))


def test_a_larger_batch_is_told_only_where_it_can_be() -> None:
    refusing = {**PINNED, "refusals": {"batch_size": "Your batch_sampler decides the batch size."}}
    by_hand = sick(RULE, launching().but(loader=refusing)).prescriptions[1]
    assert not by_hand.settings and "decides the batch size" in by_hand.text
    assert len(sick(RULE, launching().but(loader={**PINNED, "dataset_len": 1000})).prescriptions) == 1


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        launching(caught_up=0.1),
        launching(ModelFacts(device_bytes={"cuda:0": 1000}, compiled=True)),
        launching(settings={"compile": True}),
        launching(inputs=InputFacts(looked_at=40, shapes=20, shape=(32, 128))),  # compiled again and again
        launching(capability=(6, 1)),  # no Triton
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
