"""attention: by separate operations, of the model's own code or of torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording.setup import AttentionCalls, ModelFacts
from tests.support.found import asked, sick
from tests.support.recordings import Loop, on_gpu

RULE = "attention"
FAST = AttentionCalls("fused", 12, 16, 12, 1024, 1024, 64, "bfloat16")
BY_HAND = replace(FAST, kernel="by hand", dtype="float32")
SEPARATE = replace(FAST, kernel="math", dtype="float32")


def card(call: AttentionCalls, **changes: Any) -> Loop:
    setup = {"attention_calls": (call,), "autocast": "bfloat16", **changes.pop("setup", {})}
    return on_gpu(setup=setup, **changes)


def on_cpu(call: AttentionCalls, **changes: Any) -> Loop:
    return Loop(forward=10.0, backward=20.0, optimizer=2.0, setup={"attention_calls": (call,), **changes})


def test_sick() -> None:
    found = sick(RULE, on_cpu(BY_HAND))
    assert found.kind == "hint" and "%" not in found.headline
    assert "12 times" in found.evidence[0] and "192 heads of size 64 over 1024 tokens" in found.evidence[1]
    (cure,) = found.prescriptions
    assert "scaled_dot_product_attention" in cure.code and cure.predicted_speedup is None
    assert sick(RULE, card(BY_HAND)).headline == found.headline


def test_torchs_own_attention_is_told_not_to_return_its_weights() -> None:
    found = sick(RULE, on_cpu(BY_HAND, layers={"MultiheadAttention": 2, "Linear": 4}))
    assert "need_weights=False" in found.prescriptions[0].code


@pytest.mark.parametrize("loop", [card(SEPARATE), on_cpu(SEPARATE)])
def test_torchs_own_separate_operations(loop: Loop) -> None:
    found = sick(RULE, loop)
    assert "separate operations" in found.evidence[0] and "is_causal=True" in found.prescriptions[0].code
    compile(found.prescriptions[0].code, RULE, "exec")


@pytest.mark.parametrize(
    "loop",
    [
        Loop(),  # nobody looked
        on_cpu(BY_HAND, model=ModelFacts(compiled=True)),  # a compiler fuses it
        on_cpu(BY_HAND).but(wait=20.0),  # starved
        on_cpu(FAST),
        card(BY_HAND, caught_up=1.0),
        card(FAST),
        card(replace(SEPARATE, queries=64, keys=64, samples=256)),  # short sequences
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None
