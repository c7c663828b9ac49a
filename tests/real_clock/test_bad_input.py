"""A treatment with nothing to try says why, and markup in names and messages is shown as text."""

from __future__ import annotations

import pytest
from torch import nn

import gpu_doctor
from tests.support.bad_input_parts import LOOP, namespace

pytestmark = pytest.mark.core

SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize(("code", "says"), [("1 / 0", "fails with ZeroDivisionError"), ("x = 1", "No training step")])
def test_a_treatment_with_nothing_to_try_says_why(code: str, says: str) -> None:
    plan = gpu_doctor.case(code).treat(steps=3, seconds=3)
    assert says in str(plan)
    assert plan.effects == ()


def test_markup_in_names_and_messages_stays_text() -> None:
    names = namespace()
    names["Bad"] = type(SCRIPT, (nn.Linear,), {})
    code = f"model = Bad(8, 2)\n{LOOP}\n# {SCRIPT}\nraise RuntimeError({SCRIPT!r})"
    case = gpu_doctor.case(code, names, name=SCRIPT)
    with pytest.raises(RuntimeError):
        case.run()
    case.trial({"batch_size": 64}, steps=3)
    from gpu_doctor.report import as_text
    from gpu_doctor.report.sections import Reported

    assert case.diagnosis is not None
    page = as_text.html(
        Reported(case.diagnosis, tuple(case.recordings), tuple(case.effects), title=SCRIPT, notes=(SCRIPT,))
    )
    assert "alert(1)" in page
    assert "<script" not in page
    assert "<script" not in case.diagnosis._repr_html_()
