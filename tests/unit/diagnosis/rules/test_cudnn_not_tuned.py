"""cudnn-not-tuned: convolutions of one shape with the benchmark off."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts
from gpu_doctor.trials import knobs
from tests.support.found import asked, sick
from tests.support.recordings import Loop, on_gpu

RULE = "cudnn-not-tuned"
FIXED = InputFacts(looked_at=40, shapes=1, shape=(64, 3, 224, 224), dtype="float32", device="cuda:0")
SETUP: dict[str, Any] = {
    "layers": {"Conv2d": 53, "Linear": 1},
    "flags": {"cudnn_benchmark": False, "deterministic": False, "matmul_precision": "highest"},
    "inputs": FIXED,
    "autocast": "bfloat16",
}
CONVOLVING = on_gpu(setup=SETUP)


def test_sick() -> None:
    found = sick(RULE, CONVOLVING)
    assert found.kind == "hint"
    cure = found.prescriptions[0]
    assert cure.settings == {"cudnn_benchmark": True} and cure.safety.value == "safe"
    knobs.allow(cure.settings, CONVOLVING.recording().setup)


@pytest.mark.parametrize(
    "setup",
    [
        {"flags": {"cudnn_benchmark": True}},
        {"flags": {}},
        {"flags": {"cudnn_benchmark": False, "deterministic": True}},
        {"layers": {"Linear": 48, "Conv2d": 1}},  # a vision transformer: one convolution, at its entrance
        {"inputs": None},
    ],
)
def test_well(setup: dict[str, Any]) -> None:
    assert asked(RULE, CONVOLVING.but(setup={**SETUP, **setup})) is None


def test_changing_shapes_would_be_timed_again_and_again() -> None:
    changing = InputFacts(looked_at=40, shapes=12, shape=(64, 3, 224, 224))
    assert asked(RULE, CONVOLVING.but(setup={**SETUP, "inputs": changing})) is None
    few = InputFacts(looked_at=2, shapes=1, shape=(64, 3, 224, 224))
    assert asked(RULE, CONVOLVING.but(setup={**SETUP, "inputs": few})) is None


def test_faster_kernels_help_no_loop_whose_queue_runs_dry() -> None:
    assert asked(RULE, CONVOLVING.but(caught_up=1.0)) is None
    assert asked(RULE, Loop(setup=SETUP)) is None
