"""python-in-forward: plain Python inside of forward and backward, while no operator of torch computes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.found import asked, named, rule, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "python-in-forward"
COMPUTES = line("h = x @ self.w + self.b", 0.2, phase="forward")
KEPT = replace(line("self.seen.append(h.tolist())", 0.4, phase="forward"), outside_torch=True)
KEEPING = Loop(forward=12.0, lines=(COMPUTES, KEPT))
"""12 of 18 ms are forwards, two thirds of them statistics."""


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer", "evaluation"])
def test_sick(phase: str) -> None:
    lines = tuple(replace(one, phase=phase) for one in KEEPING.lines)
    loop = KEEPING.but(forward=4.0, backward=4.0, lines=lines).but(**{phase: 12.0})
    found = sick(RULE, loop)
    assert found.cost_share == pytest.approx(0.4, abs=0.05)
    assert "self.seen.append" in found.headline and not any("self.w" in one for one in found.evidence)
    assert named(loop)[0] == RULE and diagnose(loop.recording()).bottleneck == "host"


def test_well() -> None:
    assert asked(RULE, KEEPING.but(lines=(replace(COMPUTES, share=0.6),))) is None
    assert asked(RULE, KEEPING.but(lines=(COMPUTES, replace(KEPT, share=0.02)))) is None
    assert asked(RULE, KEEPING.but(lines=(COMPUTES, replace(KEPT, in_torch=True)))) is None, "torch's own Python"
    assert diagnose(KEEPING.but(lines=(COMPUTES,)).recording()).bottleneck == "compute"


def test_what_a_debugging_aid_runs_is_its_own() -> None:
    assert asked(RULE, KEEPING.but(setup={"flags": {"anomaly_mode": True}})) is None


def test_two_looks_tell_nothing() -> None:
    for looks, told in ((100, True), (4, False)):
        recording = replace(KEEPING.recording(), looks=looks)
        assert bool(rule(RULE).finds(measure(recording))) == told


def test_behind_a_busy_gpu_it_is_free() -> None:
    loop = on_gpu(forward=12.0, lines=(COMPUTES, KEPT), caught_up=1.0)
    assert sick(RULE, loop).cost_share > 0.1
    assert asked(RULE, loop.but(caught_up=0.0)) is None
