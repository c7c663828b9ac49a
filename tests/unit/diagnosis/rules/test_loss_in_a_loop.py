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
        assert (rule(RULE).finds(measure(recording)) is not None) == told


def test_behind_a_busy_gpu_it_is_free() -> None:
    loop = on_gpu(loss=5.0, lines=(PAIR, PLAIN), setup=GRAPH)
    assert asked(RULE, loop) is None
    assert asked(RULE, loop.but(caught_up=1.0)) is not None


ASKED = replace(
    line("(grad,) = torch.autograd.grad(scores[i], mixed, create_graph=True)", 0.4),
    phase="backward",
    in_torch=True,
    one_by_one="<cell>:5",
)
LAST = replace(line("loss.backward()", 0.3), phase="backward", in_torch=True)
PENALTY = Loop(forward=1.0, backward=14.0, optimizer=5.0, lines=(ASKED, LAST))
"""14 of 20 ms are the backward's, 8 of them the calls for one sample's gradient."""


def test_gradients_of_one_sample_at_a_time() -> None:
    found = sick(RULE, PENALTY)
    assert found.cost_share == pytest.approx(0.4 * 7 / 8)
    assert "gradients of one sample at a time" in found.headline
    assert any("8.00 ms" in one and "32 samples" in one for one in found.evidence)
    assert any("autograd.grad(scores[i]" in one for one in found.evidence)
    cure = found.prescriptions[0]
    assert "influence one another" in cure.text and "scores.sum()" in cure.code
    compile(cure.code, RULE, "exec")
    assert named(PENALTY) == [RULE]
    again = sick(RULE, PENALTY.but(setup=GRAPH))
    assert again.cost_share == pytest.approx(0.4 * 7 / 8 + 0.3 * (1 - 40 / 500)), (
        "the backward goes through all of them"
    )


def test_one_backward_for_each_sample() -> None:
    backed = replace(ASKED, text="losses[i].backward(retain_graph=True)")
    cure = sick(RULE, PENALTY.but(lines=(backed, LAST))).prescriptions[0]
    assert cure.code.startswith("losses.sum().backward()") and "influence" not in cure.text, "sums add up in any case"


def test_well_gradients() -> None:
    assert asked(RULE, PENALTY.but(lines=(replace(ASKED, one_by_one=""), LAST))) is None, "the text tells of no loop"
    assert asked(RULE, PENALTY.but(lines=(replace(ASKED, phase="other"), LAST))) is None
    assert asked(RULE, PENALTY.but(lines=(replace(ASKED, share=0.05), LAST))) is None
    assert asked(RULE, PENALTY.but(batch=4)) is None
    few = replace(PENALTY.recording(), looks=5)
    assert rule(RULE).finds(measure(few)) is None
    loop = on_gpu(lines=(ASKED, LAST))
    assert asked(RULE, loop) is None and asked(RULE, loop.but(caught_up=1.0)) is not None
