"""full-precision: float32 products on a GPU with tensor cores."""

from __future__ import annotations

import pytest
from found import asked, sick, top
from recordings import Loop, on_gpu

RULE = "full-precision"
FLOAT32 = on_gpu(tensor_active=0.0)


def test_sick() -> None:
    found = sick(RULE, FLOAT32)
    assert found.cost_share == pytest.approx(1 / 3, rel=0.02)
    cure = found.prescriptions[0]
    assert cure.settings == {"amp": "bf16"} and cure.safety.value == "changes-training" and cure.changes
    assert cure.predicted_speedup is None  # measure it
    assert top(FLOAT32) == RULE


def test_a_card_without_bfloat16_gets_float16() -> None:
    assert sick(RULE, FLOAT32.but(capability=(7, 5))).prescriptions[0].settings == {"amp": "fp16"}


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),  # tensor cores are active
        FLOAT32.but(setup={"autocast": "bfloat16"}),
        FLOAT32.but(setup={"dtype": "bfloat16"}),
        FLOAT32.but(capability=(6, 1)),
        FLOAT32.but(setup={"layers": {"ReLU": 3}}),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_a_queue_that_runs_dry_gains_nothing_from_faster_products() -> None:
    assert asked(RULE, FLOAT32.but(queue_empty=1.0)) is None


def test_no_gpu_is_invented_on_a_cpu() -> None:
    assert asked(RULE, Loop()) is None
