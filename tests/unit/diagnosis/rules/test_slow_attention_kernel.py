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


def card(*calls: AttentionCalls, **changes: Any) -> Loop:
    setup = {"model": GPT, "attention_calls": calls, "autocast": "bfloat16", **changes.pop("setup", {})}
    return on_gpu(setup=setup, **changes)


def on_cpu(*calls: AttentionCalls, longer: tuple[float, ...] | None = (0.008, 0.01, 0.02)) -> Loop:
    """A step of 32 ms, of which 30 are forward and backward; what separate operations take longer, in seconds."""
    setup = {"attention_calls": calls, "attention_longer_s": longer}
    return Loop(forward=10.0, backward=20.0, optimizer=2.0, setup=setup)


DROPPED = replace(FLASH, kernel="math", dtype="float32", drops=True, masked=True, causal=False)
MASKED = replace(FLASH, kernel="efficient", masked=True, causal=False)


def test_sick() -> None:
    found = sick(RULE, on_cpu(DROPPED))
    assert found.cost_share == pytest.approx(10 / 32), "as timed after the run"
    assert found.evidence[0].startswith("dropout on the attention weights keeps 12")
    (cure,) = found.prescriptions
    assert cure.predicted_low == pytest.approx(32 / 24) and cure.predicted_high == pytest.approx(32 / 12)
    assert "regularisation" in cure.changes and cure.predicted_speedup == pytest.approx(1 / (1 - found.cost_share))
    assert top(on_cpu(DROPPED)) == RULE


def test_well() -> None:
    assert asked(RULE, on_cpu(replace(FLASH, kernel="cpu"))) is None
    for kernel in ("flash", "cudnn"):
        assert asked(RULE, card(replace(FLASH, kernel=kernel))) is None


def test_short_sequences_cost_what_they_were_timed_to_cost() -> None:
    """Of 16 samples of 64 tokens, by products 23 %: what separate operations take longer is what the clock says."""
    short = replace(DROPPED, calls=2, heads=8, queries=64, keys=64, head_size=8)
    assert asked(RULE, on_cpu(short, longer=(0.0002, 0.0005, 0.001))) is None
    assert sick(RULE, on_cpu(short, longer=(0.005, 0.006, 0.008))).cost_share == pytest.approx(6 / 32)
    assert asked(RULE, on_cpu(short, longer=None)) is None, "nobody timed it"


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
    assert asked(RULE, card(DROPPED, caught_up=1.0)) is None
    assert asked(RULE, on_cpu()) is None
    assert asked(RULE, Loop(setup={"model": GPT})) is None, "nobody looked at the graph"
