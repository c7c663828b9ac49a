"""loss-in-a-loop: hundreds of operations for a few weights, made by a loop inside of the step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.found import asked, named, rule, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "loss-in-a-loop"
PAIR = replace(line("total = total + (z[i] - z[j]).square().sum()", 0.3), before_backward=True, looped=True)
PLAIN = replace(line("loss = criterion(z, y)", 0.02), before_backward=True)
GRAPH = {"graph_operations": 500, "graph_leaves": 4}
PAIRS = Loop(loss=5.0, backward=6.0, lines=(PAIR, PLAIN), setup=GRAPH)
"""5 of 17 ms make the loss, 6 go back through it and through the model."""


def test_sick() -> None:
    found = sick(RULE, PAIRS)
    assert found.cost_share == pytest.approx((5 * 0.3 / 0.32 + 6 * (1 - 40 / 500)) / 17)
    assert any("500 operations for 4 tensors" in one for one in found.evidence)
    assert any("total + " in one for one in found.evidence)
    compile(found.prescriptions[0].code, RULE, "exec")
    assert named(PAIRS) == [RULE]


def test_well() -> None:
    def graph(operations: int | None, leaves: int | None) -> Loop:
        return PAIRS.but(setup={"graph_operations": operations, "graph_leaves": leaves})

    assert asked(RULE, graph(60, 4)) is None, "three losses in a loop"
    assert asked(RULE, graph(900, 160)) is None, "a deep network"
    assert asked(RULE, graph(None, None)) is None, "an older recording"
    assert asked(RULE, PAIRS.but(lines=(replace(PAIR, looped=False), PLAIN))) is None
    assert asked(RULE, PAIRS.but(lines=(replace(PAIR, beside="step"), PLAIN))) is None, "a metric: slow-python's"
    assert asked(RULE, PAIRS.but(loss=1.0)) is None
    assert asked(RULE, PAIRS.but(lines=())) is None


def test_two_looks_tell_nothing() -> None:
    for looks, told in ((100, True), (6, False)):
        recording = replace(PAIRS.recording(), looks=looks)
        assert (rule(RULE).check(measure(recording)) is not None) == told


def test_behind_a_busy_gpu_it_is_free() -> None:
    loop = on_gpu(loss=5.0, lines=(PAIR, PLAIN), setup=GRAPH)
    assert asked(RULE, loop) is None
    assert asked(RULE, loop.but(queue_empty=1.0)) is not None
