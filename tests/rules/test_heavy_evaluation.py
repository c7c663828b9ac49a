"""heavy-evaluation: passes over validation data between the steps."""

from __future__ import annotations

import pytest
from found import asked, named, sick, top
from recordings import Loop, line

RULE = "heavy-evaluation"
OFTEN = Loop(evaluation=10.0)


def test_sick() -> None:
    found = sick(RULE, OFTEN)
    assert found.cost_share == pytest.approx(0.5)
    cure = found.prescriptions[0]
    assert cure.predicted_speedup == pytest.approx(1 / 0.75) and cure.safety.value == "by-hand"
    assert top(OFTEN) == RULE


def test_it_names_the_lines() -> None:
    found = sick(RULE, OFTEN.but(lines=(line("evaluate(model)", 0.5, "evaluation"),)))
    assert any("evaluate(model)" in one for one in found.evidence)


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(evaluation=1.0)) is None


def test_evaluation_is_not_blamed_on_the_loader() -> None:
    assert named(OFTEN) == [RULE]
