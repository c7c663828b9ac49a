"""emulated-half-precision: bfloat16 on a card without it, float16 without a scaler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, named, sick, surely, top
from tests.support.recordings import Loop, on_gpu

RULE = "emulated-half-precision"
LOOP = "for x, y in loader:\n    with autocast():\n        loss = f(model(x), y)\n    f(model(x), y).backward()\n"
T4: dict[str, Any] = {"autocast": "bfloat16"}
EMULATED = on_gpu(capability=(7, 5), tensor_active=None, setup=T4)
UNSCALED = on_gpu(setup={"autocast": "float16"}, source=LOOP)


def test_sick() -> None:
    found = sick(RULE, EMULATED)
    assert found.kind == "hint" and not found.risk
    assert "GradScaler" in found.prescriptions[0].code and not found.prescriptions[0].settings
    assert top(EMULATED) == RULE


def test_predictions_need_no_scaler() -> None:
    predicts = EMULATED.but(backward=0.0, optimizer=0.0, setup={**T4, "optimizers": ()})
    (cure,) = sick(RULE, predicts).prescriptions
    assert "caler" not in cure.text + cure.code and "backward" not in cure.code
    assert "torch.float16" in cure.code and "results" in cure.changes


def test_float16_that_nothing_scales_is_a_risk() -> None:
    found = sick(RULE, UNSCALED)
    assert found.kind == "hint" and "underflow" in found.risk
    assert "bfloat16" in found.prescriptions[0].code
    assert RULE in named(UNSCALED)


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(setup={"autocast": "bfloat16"}),
        on_gpu(setup={"autocast": "bfloat16", "devices": ()}),  # nobody knows the card
        on_gpu(capability=(7, 5)),  # float32
        EMULATED.but(caught_up=1.0),
        Loop(setup=T4),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


@pytest.mark.parametrize(
    "source",
    [
        LOOP.replace("f(model(x), y).backward()", "scaler.scale(loss).backward()"),
        LOOP.replace("f(model(x), y).backward()", "accelerator.backward(loss)"),
        LOOP.replace("loss =", "loss = loss_scale *"),
        "trainer.fit(model, loader)",  # a library's loop has a scaler of its own
        "",
    ],
)
def test_a_scaled_loss_is_no_risk(source: str) -> None:
    assert asked(RULE, UNSCALED.but(source=source)) is None


def test_a_scaler_of_features_is_no_gradient_scaler() -> None:
    features = "scaler = StandardScaler()\nrows = scaler.fit_transform(rows)\n" + LOOP
    assert surely(RULE, UNSCALED.but(source=features)).risk


def test_a_gradient_scaler_of_an_earlier_cell_was_seen_at_work() -> None:
    assert asked(RULE, UNSCALED.but(setup={"autocast": "float16", "grad_scaler": True})) is None


def test_the_amp_knob_scales_by_itself() -> None:
    assert asked(RULE, UNSCALED.but(settings={"amp": "fp16"})) is None
