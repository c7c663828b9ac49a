"""unused-logits: what positions cost that a loss leaves out, timed on a CPU, by products on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording.setup import AttentionCalls, UnusedLogits
from tests.support.found import asked, rule, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "unused-logits"
MASKED = UnusedLogits("ignore_index", 10, 7680, 1152, 8000, 160, longer_s=(0.008, 0.01, 0.02))
"""Of 768 positions a loss reads 115."""


def on_cpu(one: UnusedLogits = MASKED, **changes: Any) -> Loop:
    """A step of 32 ms, of which 30 are forward and backward."""
    return Loop(forward=10.0, backward=20.0, optimizer=2.0, setup={"unused_logits": one}, **changes)


def test_sick() -> None:
    found = sick(RULE, on_cpu())
    assert found.cost_share == pytest.approx(10 / 32), "as timed after the run"
    assert "leaves out 85 % of the positions" in found.headline and "8000 classes" in found.headline
    assert "8000 classes from 160 numbers at 768 positions" in found.evidence[0]
    assert found.evidence[0].endswith("reads 115")
    assert "`ignore_index`; counted in 10 backwards" in found.evidence[1] and "10.0 ms" in found.evidence[2]
    (cure,) = found.prescriptions
    assert cure.predicted_low == pytest.approx(32 / 24) and cure.predicted_high == pytest.approx(32 / 12)
    assert cure.predicted_speedup == pytest.approx(32 / 22) and "labels.flatten() != -100" in cure.code
    assert top(on_cpu()) == RULE


def test_well() -> None:
    assert asked(RULE, Loop(forward=10.0, backward=20.0, optimizer=2.0)) is None
    assert asked(RULE, on_cpu(replace(MASKED, longer_s=None))) is None, "nobody timed it"


def test_few_positions_without_a_part_in_the_loss() -> None:
    """Labels shifted by one, and some padding."""
    assert asked(RULE, on_cpu(replace(MASKED, used=6300))) is None


def test_a_last_layer_that_is_small_beside_the_model() -> None:
    assert asked(RULE, on_cpu(replace(MASKED, longer_s=(0.0005, 0.001, 0.002)))) is None


def test_each_micro_batch_pays_for_it() -> None:
    vitals = replace(on_cpu().vitals(), batches_per_step=2.0)
    found = rule(RULE).finds(vitals)
    assert found is not None and found.cost_share == pytest.approx(20 / 32)


def test_it_saves_no_more_than_forward_and_backward_take() -> None:
    (cure,) = sick(RULE, on_cpu(replace(MASKED, longer_s=(0.01, 0.05, 0.1)))).prescriptions
    assert cure.predicted_speedup == cure.predicted_high == pytest.approx(32 / 2)


@pytest.mark.parametrize(
    ("told_by", "said"),
    [("mask", "multiplied by 0"), ("index", "losses of the others"), ("picked logits", "logits of the others")],
)
def test_what_leaves_positions_out_is_said(told_by: str, said: str) -> None:
    found = sick(RULE, on_cpu(replace(MASKED, told_by=told_by)))
    assert said in found.evidence[1] and "labels[keep]" in found.prescriptions[0].code


def card(*calls: AttentionCalls) -> Loop:
    """A GPU that is busy with forward and backward; two of three products of a backward are the layer's."""
    layer = 2.0 * 768 * 8000 * 160
    one = replace(MASKED, all_products=1.5 * layer, longer_s=None)
    return on_gpu(setup={"unused_logits": one, "attention_calls": calls})


def test_on_a_gpu_by_products() -> None:
    vitals = card().vitals()
    found = sick(RULE, card())
    assert found.cost_share == pytest.approx((vitals.gpu_busy_share or 0.0) * 0.85 * 2 / 3)
    (cure,) = found.prescriptions
    assert cure.predicted_low == 1.0 and "67 % of the products" in found.evidence[2]


def test_on_a_gpu_attention_has_its_part_of_the_products() -> None:
    layer = 2.0 * 768 * 8000 * 160
    calls = AttentionCalls("flash", 1, 8, 4, 96, 96, int(layer / 4 / 8 / 4 / 96 / 96), "bfloat16")
    part = layer / (1.5 * layer + 2.0 * calls.products)
    found = sick(RULE, card(calls))
    assert found.cost_share == pytest.approx((card().vitals().gpu_busy_share or 0.0) * 0.85 * part)
