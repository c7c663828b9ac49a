"""channels-first-convolutions: half precision on tensors stored channels first."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "channels-first-convolutions"


def images(stored: int = 0, **changes: Any) -> Loop:
    model = ModelFacts(convolutions=53, channels_last=stored)
    setup = {"model": model, "autocast": "bfloat16", "layers": {"Conv2d": 53}}
    return on_gpu(setup={**setup, **changes})


@pytest.mark.parametrize(
    "loop",
    [
        images(),
        images(autocast="", dtype="float16"),  # half-precision weights
        images(layers={"Conv2d": 53, "Linear": 1}),
    ],
)
def test_sick(loop: Loop) -> None:
    found = sick(RULE, loop)
    assert found.kind == "hint" and top(loop) == RULE
    cure = found.prescriptions[0]
    assert cure.settings == {"channels_last": True} and cure.safety.value == "safe"
    assert cure.predicted_speedup is None


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        images(stored=53),
        images(inputs=InputFacts(looked_at=20, channels_last=True)),  # images take the network along
        images(autocast=""),  # full precision
        images(autocast="bfloat16").but(capability=(7, 5)),  # emulated
        images(model=ModelFacts(convolutions=1), layers={"Conv2d": 1, "Linear": 49}),  # a transformer
        images(model=ModelFacts(convolutions=2), layers={"Conv1d": 20, "Conv2d": 2}),  # no such layout
        images(model=ModelFacts(), layers={"Conv3d": 20}),
        images().but(caught_up=1.0),  # the queue runs dry
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
