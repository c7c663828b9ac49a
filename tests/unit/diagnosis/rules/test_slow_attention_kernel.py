"""slow-attention-kernel: calls that the graph of the first backward shows on a slower kernel than their device has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording.setup import AttentionCalls, ModelFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "slow-attention-kernel"
GPT = ModelFacts({"cuda:0": 500 << 20}, product_weights=12 * 12 * 768 * 768)
FLASH = AttentionCalls("flash", 12, 16, 12, 1024, 1024, 64, "bfloat16", None, True)
PART = 1024 / (6 * 768 + 1024)
"""Of a block's arithmetic, with this width and length."""


def card(*calls: AttentionCalls, **changes: Any) -> Loop:
    setup = {"model": GPT, "attention_calls": calls, "autocast": "bfloat16", **changes.pop("setup", {})}
    return on_gpu(setup=setup, **changes)


def on_cpu(*calls: AttentionCalls) -> Loop:
    model = ModelFacts({"cpu": 500 << 20}, product_weights=12 * 12 * 768 * 768)
    return Loop(forward=10.0, backward=20.0, optimizer=2.0, setup={"model": model, "attention_calls": calls})


DROPPED = replace(FLASH, kernel="math", dtype="float32", drops=True, masked=True, causal=False)
MASKED = replace(FLASH, kernel="efficient", masked=True, causal=False)


def test_sick() -> None:
    found = sick(RULE, on_cpu(DROPPED))
    longer = PART * 2.5  # separate operations take 3.5 times as long as the fused kernel
    assert found.cost_share == pytest.approx(30 / 32 * longer / (1 + longer))
    assert found.evidence[0].startswith("dropout on the attention weights keeps 12 calls of attention off")
    (cure,) = found.prescriptions
    assert "regularisation" in cure.changes and cure.predicted_speedup == pytest.approx(1 / (1 - found.cost_share))
    assert top(on_cpu(DROPPED)) == RULE


def test_well() -> None:
    assert asked(RULE, on_cpu(replace(FLASH, kernel="cpu"))) is None
    for kernel in ("flash", "cudnn"):
        assert asked(RULE, card(replace(FLASH, kernel=kernel))) is None


def test_on_a_cpu_a_mask_costs_nothing() -> None:
    assert asked(RULE, on_cpu(replace(FLASH, kernel="cpu", masked=True, causal=False))) is None


@pytest.mark.parametrize("masked", [True, None])
def test_on_a_gpu_a_mask_may_cost_nothing_and_up_to_half(masked: bool | None) -> None:
    long = replace(MASKED, masked=masked, queries=8192, keys=8192, samples=2)
    found = sick(RULE, card(long))
    (cure,) = found.prescriptions
    assert "is_causal=True" in cure.code
    assert cure.predicted_low == 1.0 and cure.predicted_high == pytest.approx(1.57, abs=0.02)
    assert "up to" in found.headline


def test_short_masked_sequences_are_left_alone() -> None:
    assert asked(RULE, card(replace(MASKED, queries=64, keys=64, samples=256))) is None


def test_queries_that_left_autocast_are_brought_back() -> None:
    stray = replace(MASKED, dtype="float32", masked=False)
    found = sick(RULE, card(replace(stray, queries=8192, keys=8192)))
    assert "float32 queries" in found.evidence[0] and "bfloat16" in found.prescriptions[0].code


def test_a_model_in_float32_is_another_rules() -> None:
    whole = replace(MASKED, dtype="float32", queries=8192, keys=8192)
    assert asked(RULE, card(whole, setup={"autocast": ""})) is None


def test_before_ampere_there_is_nothing_faster() -> None:
    long = replace(MASKED, queries=8192, keys=8192)
    assert asked(RULE, card(long, capability=(7, 5))) is None


@pytest.mark.parametrize(
    ("call", "said", "code"),
    [
        (replace(DROPPED, learned_mask=True), "gets a gradient", "flex_attention"),
        (replace(DROPPED, head_size=320), "heads of size 320", "view"),
        (DROPPED, "does not tell", "sdpa_kernel"),
    ],
)
def test_separate_operations_on_a_gpu_name_their_cause(call: AttentionCalls, said: str, code: str) -> None:
    found = sick(RULE, card(call))
    assert said in found.evidence[0] and code in found.prescriptions[0].code
    compile(found.prescriptions[0].code, RULE, "exec")


def test_behind_launches_and_in_older_files_it_is_quiet() -> None:
    assert asked(RULE, card(DROPPED, queue_empty=1.0)) is None
    assert asked(RULE, on_cpu()) is None
    assert asked(RULE, Loop(setup={"model": GPT})) is None, "nobody looked at the graph"
