"""attention: by separate operations in the model's own code, or on a slower kernel than the device has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording.setup import AttentionCalls, InputFacts, ModelFacts
from tests.support.found import asked, sick
from tests.support.recordings import Loop, on_gpu

RULE = "attention"
GPT = ModelFacts(
    {"cpu": 500 << 20},
    attention=("h.0.attn: CausalSelfAttention",),
    attention_width=768,
)
BY_HAND: dict[str, Any] = {"model": GPT, "inputs": InputFacts(40, 1, (16, 1024), "int64", "cpu")}
TRAINING = Loop(batch=16, forward=10.0, backward=20.0, optimizer=2.0, setup=BY_HAND)
FUSED = replace(GPT, attention=())
FLASH = AttentionCalls("flash", 12, 16, 12, 1024, 1024, 64, "bfloat16")
SEPARATE = replace(FLASH, kernel="math", dtype="float32")
MASKED = replace(FLASH, kernel="efficient")


def but(**changes: Any) -> Loop:
    return TRAINING.but(setup={**BY_HAND, **changes})


def card(*calls: AttentionCalls, **changes: Any) -> Loop:
    setup = {"model": FUSED, "attention_calls": calls, "autocast": "bfloat16", **changes.pop("setup", {})}
    return on_gpu(setup=setup, **changes)


def on_cpu(*calls: AttentionCalls) -> Loop:
    return Loop(forward=10.0, backward=20.0, optimizer=2.0, setup={"attention_calls": calls})


def test_sick() -> None:
    found = sick(RULE, TRAINING)
    assert found.kind == "hint" and "%" not in found.headline
    assert found.evidence[0] == "h.0.attn: CausalSelfAttention" and "sequences of 1024" in found.evidence[1]
    (cure,) = found.prescriptions
    assert "scaled_dot_product_attention" in cure.code and cure.predicted_speedup is None
    assert sick(RULE, on_gpu(batch=16, setup=BY_HAND)).headline == found.headline


def test_torchs_own_attention_is_told_not_to_return_its_weights() -> None:
    assert "need_weights=False" in sick(RULE, but(model=replace(GPT, asks_weights=True))).prescriptions[0].code


@pytest.mark.parametrize("shape", [(16, 1024, 768), (1024, 16, 768)])
def test_the_loaders_batch_tells_tokens_from_samples(shape: tuple[int, ...]) -> None:
    assert "sequences of 1024" in sick(RULE, but(inputs=InputFacts(40, 1, shape, "float32", "cpu"))).evidence[1]


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        (MASKED, "memory-efficient"),
        (replace(MASKED, dtype="float32"), "memory-efficient"),  # queries that left autocast
        (SEPARATE, "separate operations"),
    ],
)
def test_a_slower_kernel(call: AttentionCalls, kernel: str) -> None:
    found = sick(RULE, card(call))
    assert kernel in found.evidence[0] and "heads of size 64" in found.evidence[1]
    assert "is_causal=True" in found.prescriptions[0].code
    compile(found.prescriptions[0].code, RULE, "exec")


def test_on_a_cpu_dropout_leads_to_separate_operations() -> None:
    assert "separate operations" in sick(RULE, on_cpu(SEPARATE)).evidence[0]


@pytest.mark.parametrize(
    "loop",
    [
        Loop(setup={"model": GPT}),  # nobody looked
        but(model=FUSED),
        but(model=replace(GPT, compiled=True)),  # a compiler fuses it
        but(inputs=InputFacts(40, 1, (16, 64), "int64", "cpu")),  # short sequences
        but(inputs=InputFacts(40, 1, (16, 3, 224, 224), "float32", "cpu")),  # images
        TRAINING.but(wait=20.0),  # starved
        on_gpu(batch=16, caught_up=1.0, setup=BY_HAND),
        card(FLASH),
        card(replace(FLASH, kernel="cudnn")),
        card(replace(MASKED, queries=64, keys=64, samples=256)),  # short
        card(replace(MASKED, dtype="float32"), setup={"autocast": ""}),  # a whole model in float32
        card(MASKED, capability=(7, 5)),  # before Ampere there is nothing faster
        card(SEPARATE, caught_up=1.0),
        on_cpu(replace(FLASH, kernel="cpu")),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
