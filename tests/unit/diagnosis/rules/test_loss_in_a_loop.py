"""loss-in-a-loop: hundreds of operations are made between forward and backward, more than there are samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "loss-in-a-loop"
PAIR = replace(line("total = total + (z[i] - z[j]).square().sum()", 0.3), before_backward=True)
GRAPH = {"graph_operations": 500, "loss_operations": 450}
PAIRS = Loop(loss=5.0, backward=6.0, lines=(PAIR,), setup=GRAPH)
"""5 of 17 ms make the loss, 6 go back through it and through the model."""


def test_sick() -> None:
    found = sick(RULE, PAIRS)
    assert found.kind == "at-most" and found.cost_share == pytest.approx((5 + 6 * 450 / 500) / 17)
    assert any("450 of the 500" in one for one in found.evidence) and any("total + " in one for one in found.evidence)
    compile(found.prescriptions[0].code, RULE, "exec")
    assert named(PAIRS) == [RULE]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"setup": {**GRAPH, "loss_operations": 60}}, "a loss of several terms"),
        ({"setup": {**GRAPH, "loss_operations": 3}}, "a network that is unrolled over time"),
        ({"setup": {**GRAPH, "loss_operations": None}}, "an older recording"),
        ({"batch": 1024}, "fewer operations than samples"),
        ({"loss": 1.0}, "it takes little"),
    ],
)
def test_well(changes: dict[str, Any], why: str) -> None:
    assert asked(RULE, PAIRS.but(**changes)) is None, why


def test_behind_a_busy_gpu_it_is_free() -> None:
    loop = on_gpu(loss=5.0, lines=(PAIR,), setup=GRAPH)
    assert asked(RULE, loop) is None
    assert asked(RULE, loop.but(caught_up=1.0)) is not None
