"""cudnn-not-tuned: convolutions of one shape with the benchmark off."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts
from gpu_doctor.trials import knobs
from tests.support.found import asked, sick
from tests.support.recordings import Loop, on_gpu

RULE = "cudnn-not-tuned"
SETUP: dict[str, Any] = {
    "layers": {"Conv2d": 53, "Linear": 1},
    "flags": {"cudnn_benchmark": False, "deterministic": False, "matmul_precision": "highest"},
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(64, 3, 224, 224), dtype="float32", device="cuda:0"),
    "autocast": "bfloat16",
}


def convolving(**changes: Any) -> Loop:
    return on_gpu(setup={**SETUP, **changes})


def test_sick() -> None:
    found = sick(RULE, convolving())
    assert found.kind == "hint"
    cure = found.prescriptions[0]
    assert cure.settings == {"cudnn_benchmark": True} and cure.safety.value == "safe"
    knobs.allow(cure.settings, convolving().recording().setup)


@pytest.mark.parametrize(
    "loop",
    [
        convolving(flags={"cudnn_benchmark": True}),
        convolving(flags={}),
        convolving(flags={"cudnn_benchmark": False, "deterministic": True}),
        convolving(layers={"Linear": 48, "Conv2d": 1}),  # a vision transformer
        convolving(inputs=None),
        convolving(inputs=InputFacts(looked_at=40, shapes=12, shape=(64, 3, 224, 224))),  # timed again and again
        convolving(inputs=InputFacts(looked_at=2, shapes=1, shape=(64, 3, 224, 224))),
        convolving().but(caught_up=1.0),  # the queue runs dry
        Loop(setup=SETUP),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
