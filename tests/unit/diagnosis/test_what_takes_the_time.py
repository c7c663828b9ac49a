"""What the verdict says of a run in which nothing was found that would save time, or a risk alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.verdict import verdict
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LineCost
from tests.support.recordings import Loop, line


@pytest.mark.parametrize(
    ("loop", "bound"),
    [
        (Loop(wait=0.6, transfer=0.6, other=0.6), True),
        (Loop(wait=0.6, transfer=0.6, other=0.6, loss=1.2), True),
        (Loop(wait=2.0), False),
        (Loop(transfer=2.0), False),
        (Loop(other=2.0), False),
        (Loop(other=2.0, loss=1.0), False),
    ],
)
def test_a_busy_cpu_is_compute_bound_unless_a_single_other_thing_takes_a_tenth(loop: Loop, bound: bool) -> None:
    said = verdict("compute", [], [], loop.vitals())
    assert said.startswith("Compute-bound" if bound else "Nothing found that would save 5 % or more"), said


COMPUTES, PYTHON = line("h = x @ W", 0.2, in_torch=True), line("print(h)", 0.2)


@pytest.mark.parametrize(
    ("lines", "computes"),
    [
        ((), False),
        ((PYTHON,), False),
        ((COMPUTES,), True),
        ((COMPUTES, PYTHON), True),
        ((COMPUTES, PYTHON, PYTHON), False),
        ((replace(COMPUTES, in_worker=True), PYTHON), False),
        ((replace(COMPUTES, before_backward=True), PYTHON), False),
        ((replace(COMPUTES, phase="forward"), PYTHON), False),
    ],
)
def test_between_the_phases_is_computing_where_half_of_what_was_seen_there_is(
    lines: tuple[LineCost, ...], computes: bool
) -> None:
    said = verdict("host", [], [], replace(Loop(other=10.0).vitals(), lines=lines))
    assert ("outside any module" in said) == computes, said
    assert ("Python between the phases" in said) != computes, said


@pytest.mark.parametrize(
    ("headline", "goes_on"),
    [
        ("Memory grows.", "memory grows."),
        ("A batch may not fit.", "a batch may not fit."),
        ("GPU 0 is shared.", "GPU 0 is shared."),
        ("PyTorch is older than its extensions.", "PyTorch is older than its extensions."),
        ("NaN is near.", "NaN is near."),
        ("GC runs in every step.", "GC runs in every step."),
        ("float16 without a scaler.", "float16 without a scaler."),
    ],
)
def test_a_risk_goes_on_after_a_colon_in_small_letters_but_for_names(headline: str, goes_on: str) -> None:
    risk = Finding("of-a-plugin", headline, None, ("seen",), risk="It may end the run.", kind="hint")
    assert verdict("compute", [], [risk], Vitals()) == f"A risk: {goes_on}"
