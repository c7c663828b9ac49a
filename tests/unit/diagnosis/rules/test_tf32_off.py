"""tf32-off: float32 matrix products of full precision on a card that has TF32."""

from __future__ import annotations

import pytest

from gpu_doctor.trials import knobs
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "tf32-off"
FLAGS = {"matmul_precision": "highest"}
OFF = on_gpu(setup={"flags": FLAGS})
"""Tensor cores are active in part (convolutions in TF32), so that full-precision is silent."""


def test_sick() -> None:
    found = sick(RULE, OFF)
    assert found.kind == "hint"
    cure = found.prescriptions[0]
    assert cure.settings == {"tf32": True} and cure.safety.value == "changes-training" and cure.changes
    assert cure.predicted_speedup is None
    assert top(OFF) == RULE
    knobs.allow(cure.settings, OFF.recording().setup)


@pytest.mark.parametrize(
    "loop",
    [
        OFF.but(setup={"flags": {"matmul_precision": "high"}}),
        OFF.but(setup={"flags": {}}),  # nobody asked
        OFF.but(capability=(7, 5)),
        OFF.but(setup={"flags": FLAGS, "autocast": "bfloat16"}),
        OFF.but(setup={"flags": FLAGS, "dtype": "bfloat16"}),
        OFF.but(caught_up=1.0),
        Loop(setup={"flags": FLAGS}),
        OFF.but(setup={"flags": FLAGS, "layers": {"Conv2d": 53, "Linear": 1}}),  # they run in TF32 by default
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_convolutions_that_the_code_keeps_from_it() -> None:
    layers = {"Conv2d": 53, "Linear": 1}
    found = sick(RULE, OFF.but(setup={"flags": {**FLAGS, "cudnn_tf32": False}, "layers": layers}))
    cure = found.prescriptions[0]
    assert cure.code == "torch.backends.cudnn.allow_tf32 = True" and cure.settings == {"tf32": True}
    assert "53 layers" in found.evidence[0] and "cudnn.allow_tf32 is False" in found.evidence[0]
    by_hand = OFF.but(setup={"flags": {"matmul_precision": "high", "cudnn_tf32": False}, "layers": layers})
    assert sick(RULE, by_hand).prescriptions[0].safety.value == "by-hand", "the knob finds TF32 on already"


def test_one_cause_first_where_half_precision_gains_more() -> None:
    both = OFF.but(tensor_active=0.0)
    assert RULE not in named(both) and "full-precision" in named(both)
    settings = [one.settings for one in sick("full-precision", both).prescriptions]
    assert settings == [{"amp": "bf16"}, {"tf32": True}]
