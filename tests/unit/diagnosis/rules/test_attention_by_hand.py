"""attention-by-hand: its part of the arithmetic, by the length of sequences and the model's width."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "attention-by-hand"
GPT = ModelFacts(
    {"cpu": 500 << 20},
    attention=("h.0.attn: CausalSelfAttention",),
    attention_width=12 * 768,
    product_weights=12 * 12 * 768 * 768,
    attention_batch_first=True,
)
SETUP: dict[str, Any] = {"model": GPT, "inputs": InputFacts(40, 1, (16, 1024), "int64", "cpu")}
TRAINING = Loop(forward=10.0, backward=20.0, optimizer=2.0, setup=SETUP)


def but(**changes: Any) -> Loop:
    return TRAINING.but(setup={**SETUP, **changes})


def test_sick() -> None:
    found = sick(RULE, TRAINING)
    assert found.cost_share == pytest.approx(30 / 32 * 1024 / (6 * 768 + 1024))  # of a block's arithmetic
    assert found.evidence[0] == "h.0.attn: CausalSelfAttention" and "sequences of 1024" in found.evidence[1]
    (cure,) = found.prescriptions
    assert "scaled_dot_product_attention" in cure.code and cure.predicted_speedup == pytest.approx(1.21, abs=0.01)
    assert top(TRAINING) == RULE


def test_torchs_own_attention_is_told_not_to_return_its_weights() -> None:
    asking = ModelFacts({"cpu": 1}, attention=("a: B",), attention_width=768, product_weights=10**6, asks_weights=True)
    asking = replace(asking, attention_batch_first=True)
    assert "need_weights=False" in sick(RULE, but(model=asking)).prescriptions[0].code


def test_on_a_gpu_it_is_a_part_of_what_the_device_computes() -> None:
    found = sick(RULE, on_gpu(setup=SETUP))
    assert found.cost_share == pytest.approx(1024 / (6 * 768 + 1024), abs=0.01)
    assert asked(RULE, on_gpu(caught_up=1.0, setup=SETUP)) is None


def test_well() -> None:
    assert asked(RULE, but(model=ModelFacts({"cpu": 500 << 20}, product_weights=10**8))) is None


@pytest.mark.parametrize("shape", [(16, 1024, 768), (1024, 16, 768)])
@pytest.mark.parametrize("said", [True, False, None])
def test_the_loaders_batch_tells_tokens_from_samples(shape: tuple[int, ...], said: bool | None) -> None:
    inputs = InputFacts(40, 1, shape, "float32", "cpu")
    setup = {**SETUP, "inputs": inputs, "model": replace(GPT, attention_batch_first=said)}
    assert "sequences of 1024" in sick(RULE, TRAINING.but(batch=16, setup=setup)).evidence[1]


def test_without_a_loader_the_attention_tells_it() -> None:
    inputs = InputFacts(40, 1, (1024, 16, 768), "float32", "cpu")
    played = TRAINING.but(has_loader=False)
    for said, tokens in ((False, 1024), (True, 16), (None, 16)):
        model = replace(GPT, attention_batch_first=said)
        found = asked(RULE, played.but(setup={**SETUP, "inputs": inputs, "model": model}))
        assert (found is not None) == (tokens == 1024), "16 tokens cost nothing"


def test_short_sequences_in_a_wide_model_cost_nothing() -> None:
    assert asked(RULE, but(inputs=InputFacts(40, 1, (16, 64), "int64", "cpu"))) is None


def test_images_say_nothing_of_the_length_of_sequences() -> None:
    assert asked(RULE, but(inputs=InputFacts(40, 1, (16, 3, 224, 224), "float32", "cpu"))) is None


def test_a_compiler_fuses_it_by_itself() -> None:
    compiled = ModelFacts({"cpu": 1}, attention=("a: B",), attention_width=768, product_weights=10**6, compiled=True)
    assert asked(RULE, but(model=compiled)) is None
