"""broadcast-similarity: what a large tensor of pairs costs beside a product, timed on a CPU, by passes on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.diagnosis.rules.compute.broadcast_similarity import PASSES
from gpu_doctor.recording.setup import PairsByBroadcast
from tests.support.found import asked, rule, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "broadcast-similarity"
PAIRS = PairsByBroadcast("cosine", 1, 1, 128, 128, 128, longer_s=(0.008, 0.01, 0.02))


def on_cpu(one: PairsByBroadcast = PAIRS) -> Loop:
    """A step of 32 ms, of which 30 are forward, loss and backward."""
    return Loop(forward=4.0, loss=6.0, backward=20.0, optimizer=2.0, setup={"pairs_by_broadcast": one})


def test_sick() -> None:
    found = sick(RULE, on_cpu())
    assert found.cost_share == pytest.approx(10 / 32), "as timed after the run"
    assert "a tensor of 128 x 128 x 128: about 31 %" in found.headline
    assert "cosines of rows: 128 by 128 rows of 128" in found.evidence[0] and found.evidence[0].endswith(" 8 MiB")
    (cure,) = found.prescriptions
    assert cure.predicted_low == pytest.approx(32 / 24) and cure.predicted_high == pytest.approx(32 / 12)
    assert "F.normalize" in cure.code and not cure.at_most
    assert top(on_cpu()) == RULE


def test_well() -> None:
    assert asked(RULE, Loop(forward=4.0, loss=6.0, backward=20.0, optimizer=2.0)) is None
    assert asked(RULE, on_cpu(replace(PAIRS, longer_s=None))) is None, "nobody timed it"


def test_few_rows() -> None:
    assert asked(RULE, on_cpu(replace(PAIRS, rows=8, longer_s=(0.0002, 0.0005, 0.001)))) is None


@pytest.mark.parametrize(
    ("kind", "code"), [("product", "a @ b.mT"), ("squares", "cdist(a, b).square()"), ("norm", "cdist(a, b)")]
)
def test_each_kind_has_its_product(kind: str, code: str) -> None:
    found = sick(RULE, on_cpu(replace(PAIRS, kind=kind, samples=4, calls=2)))
    assert code in found.prescriptions[0].code and "4 x 128 x 128 x 128" in found.headline
    assert found.evidence[0].endswith("32 MiB, 2 times")


def test_distances_are_rounded_more() -> None:
    assert "nearly equal" in sick(RULE, on_cpu(replace(PAIRS, kind="norm"))).prescriptions[0].changes


CARD: dict[str, Any] = {
    "gpu_busy_share": 0.95,
    "gpu_forward_share": 0.2,
    "gpu_backward_share": 0.5,
    "gpu_optimizer_share": 0.05,
}
"""What is left lies between forward and backward: a fifth of the time."""


def test_on_a_gpu_by_passes_at_most() -> None:
    vitals = replace(on_gpu(setup={"pairs_by_broadcast": replace(PAIRS, kind="product")}).vitals(), **CARD)
    found = rule(RULE).finds(vitals)
    ahead, back = PASSES["product"]
    assert found is not None and found.cost_share == pytest.approx(0.2 * (1 + back / ahead))
    assert found.prescriptions[0].at_most and "up to 60 %" in found.headline
    cosine = rule(RULE).finds(replace(vitals, setup=replace(vitals.setup, pairs_by_broadcast=PAIRS)))
    assert cosine is not None and cosine.cost_share == pytest.approx(0.2 + 0.5), (
        "the backward gives no more than it has"
    )


def test_a_gpu_keeps_small_tensors_in_its_caches() -> None:
    vitals = replace(on_gpu(setup={"pairs_by_broadcast": replace(PAIRS, rows=8)}).vitals(), **CARD)
    assert rule(RULE).finds(vitals) is None
