"""unaligned-shapes: large half-precision layers of odd width."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "unaligned-shapes"
HEAD = "lm_head: Linear 768 x 50257"
SETUP: dict[str, Any] = {
    "autocast": "bfloat16",
    "parameters": 124_000_000,
    "model": ModelFacts(unaligned=(HEAD,)),
    "inputs": InputFacts(looked_at=40, shapes=1, shape=(12, 1024), dtype="int64"),
}
GPT = on_gpu(setup=SETUP)


def test_sick() -> None:
    found = sick(RULE, GPT)
    assert found.cost_share == pytest.approx(0.5 * 768 * 50257 / 124e6, rel=0.02)
    assert "50304" in found.prescriptions[0].code and HEAD in found.evidence
    assert any("batches of 12" in text for text in found.evidence)
    assert RULE in named(GPT)


@pytest.mark.parametrize(
    "setup",
    [
        {"model": ModelFacts()},
        {"model": None},
        {"autocast": ""},  # float32
        {"parameters": None},
    ],
)
def test_well(setup: dict[str, Any]) -> None:
    assert asked(RULE, GPT.but(setup={**SETUP, **setup})) is None


def test_ten_classes_at_the_end_of_a_large_model_are_not_named() -> None:
    small = {**SETUP, "parameters": 25_000_000, "model": ModelFacts(unaligned=("fc: Linear 2048 x 10",))}
    assert RULE not in named(GPT.but(setup=small))


def test_a_batch_of_odd_size_alone_is_no_finding() -> None:
    odd = {**SETUP, "model": ModelFacts(), "inputs": InputFacts(looked_at=40, shapes=1, shape=(33, 1024))}
    assert asked(RULE, GPT.but(setup=odd)) is None


def test_only_on_a_gpu_that_is_kept_busy() -> None:
    assert asked(RULE, GPT.but(caught_up=1.0)) is None
    assert asked(RULE, Loop(setup=SETUP)) is None
