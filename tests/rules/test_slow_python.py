"""slow-python: the loop's own code between the phases."""

from __future__ import annotations

import pytest
from chores import calling, found
from found import asked, sick, top
from recordings import Loop, line, on_gpu

from gpu_doctor.recording import LineCost

RULE = "slow-python"
LOGGING = Loop(other=10.0)


def test_sick() -> None:
    named = sick(RULE, LOGGING)
    assert named.cost_share == pytest.approx(0.5)
    cure = named.prescriptions[0]
    assert cure.predicted_speedup == pytest.approx(2.0) and cure.predicted_low == 1.0
    assert top(LOGGING) == RULE


def test_the_gain_may_be_more_as_the_rest_gets_faster_without_it() -> None:
    # Measured: 72 % of Python, 3.6x by Amdahl, 4.6x in truth.
    cure = sick(RULE, LOGGING.but(other=25.7)).prescriptions[0]
    assert cure.predicted_speedup == pytest.approx(3.57, abs=0.01)
    assert cure.predicted_high is not None and 4.6 < cure.predicted_high < 5.2
    assert "about" in cure.text and "at most" not in cure.text


def test_it_names_the_lines() -> None:
    named = sick(RULE, LOGGING.but(lines=(line("plot(history)", 0.48), line("y = model(x)", 0.3, "forward"))))
    assert any("plot(history)" in one for one in named.evidence)
    assert not any("model(x)" in one for one in named.evidence)


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(other=0.9)) is None


def test_the_loss_between_forward_and_backward_is_compute() -> None:
    assert asked(RULE, Loop(other=0.0, loss=10.0)) is None


def test_what_the_lines_spend_inside_torch_is_not_python() -> None:
    assert asked(RULE, LOGGING.but(lines=(line("z = x @ w", 0.5, in_torch=True),))) is None


def test_a_call_that_keeps_the_lock_is_seen_by_few_looks_and_priced_by_the_clock() -> None:
    seldom = asked(RULE, LOGGING.but(lines=(line("rows = logits.tolist()", 0.02),)))
    never = asked(RULE, LOGGING.but(lines=(line("x = y", 0.5, phase="forward"),)))
    assert seldom is not None and never is not None
    assert seldom.cost_share == never.cost_share == pytest.approx(LOGGING.vitals().other_share)
    half = LOGGING.but(lines=(line("rows = logits.tolist()", 0.02), line("z = f(x)", 0.02, in_torch=True)))
    found = asked(RULE, half)
    assert found is not None and found.cost_share == pytest.approx(seldom.cost_share / 2)


def test_python_behind_a_busy_gpu_is_free() -> None:
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9)) is None
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0)) is not None


def test_a_forward_without_modules_cannot_be_told_from_python() -> None:
    assert asked(RULE, LOGGING.but(forward=0.0)) is None


def test_checkpoints_and_collections_have_rules_of_their_own() -> None:
    assert found(RULE, calling(LOGGING, "checkpoint", 0.45, 10)) is None
    left = found(RULE, calling(LOGGING, "collect-garbage", 0.2, 100))
    assert left is not None and left.cost_share == pytest.approx(0.3)


def test_the_line_of_a_chore_is_not_named() -> None:
    both = LOGGING.but(lines=(line("plot(history)", 0.3), LineCost("<cell>", 9, "f", "gc.collect()", "other", 0.2)))
    left = found(RULE, calling(both, "collect-garbage", 0.2, 100))
    assert left is not None and left.cost_share == pytest.approx(0.3)
    assert not any("gc.collect" in one for one in left.evidence)
