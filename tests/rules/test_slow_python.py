"""slow-python: the loop's own code between the phases."""

from __future__ import annotations

import pytest
from found import asked, sick, top
from recordings import Loop, line, on_gpu

RULE = "slow-python"
LOGGING = Loop(other=10.0)


def test_sick() -> None:
    found = sick(RULE, LOGGING)
    assert found.cost_share == pytest.approx(0.5)
    cure = found.prescriptions[0]
    assert cure.predicted_speedup == pytest.approx(2.0) and cure.predicted_low == 1.0
    assert top(LOGGING) == RULE


def test_it_names_the_lines() -> None:
    found = sick(RULE, LOGGING.but(lines=(line("plot(history)", 0.48), line("y = model(x)", 0.3, "forward"))))
    assert any("plot(history)" in one for one in found.evidence)
    assert not any("model(x)" in one for one in found.evidence)


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(other=0.9)) is None


def test_the_loss_between_forward_and_backward_is_compute() -> None:
    assert asked(RULE, Loop(other=0.0, loss=10.0)) is None


def test_what_the_lines_spend_inside_torch_is_not_python() -> None:
    assert asked(RULE, LOGGING.but(lines=(line("z = x @ w", 0.5, in_torch=True),))) is None


def test_python_behind_a_busy_gpu_is_free() -> None:
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9)) is None
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0)) is not None


def test_a_forward_without_modules_cannot_be_told_from_python() -> None:
    assert asked(RULE, LOGGING.but(forward=0.0)) is None
