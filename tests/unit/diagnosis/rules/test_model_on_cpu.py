"""model-on-cpu: a GPU is there and the model is not on it."""

from __future__ import annotations

import pytest

from gpu_doctor.recording import DeviceSetup
from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "model-on-cpu"
CARD = (DeviceSetup(0, "NVIDIA H200", "GPU-1", int(80e9), (9, 0)),)
HERE = ModelFacts(device_bytes={"cpu": 4_000_000})
FORGOTTEN = Loop(forward=10.0, backward=20.0, optimizer=2.0, wait=8.0, setup={"devices": CARD, "model": HERE})


def test_sick() -> None:
    found = sick(RULE, FORGOTTEN)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.8)
    cure = found.prescriptions[0]
    assert 'to("cuda")' in cure.code and cure.predicted_speedup is None
    assert "H200" in found.headline
    assert found.first and top(FORGOTTEN) == RULE, "before the wait that was measured"


def test_it_says_where_the_inputs_are() -> None:
    inputs = InputFacts(looked_at=20, shapes=1, shape=(32, 4), device="cpu")
    setup = {"devices": CARD, "model": HERE, "inputs": inputs}
    assert "its inputs on cpu" in sick(RULE, FORGOTTEN.but(setup=setup)).evidence[0]


SPLIT = ModelFacts(device_bytes={"cpu": 4_000_000, "cuda:0": 4_000_000})


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        Loop(forward=10.0, backward=20.0),
        FORGOTTEN.but(setup={"devices": (), "model": HERE}),  # no GPU is invented
        FORGOTTEN.but(forward=1.0, backward=2.0, optimizer=0.5),  # a tiny model may stay
        FORGOTTEN.but(setup={"devices": CARD, "model": SPLIT}),  # put there on purpose
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
