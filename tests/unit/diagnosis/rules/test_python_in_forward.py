"""python-in-forward: statements of a forward on which its output does not depend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.found import asked, named, rule, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "python-in-forward"
NEEDED = line("h = self.body(x)", 0.2, phase="forward")
KEPT = replace(line("self.seen.append(h.tolist())", 0.4, phase="forward"), beside="model")
KEEPING = Loop(forward=12.0, lines=(NEEDED, KEPT))
"""12 of 18 ms are forwards, two thirds of them statistics."""


def test_sick() -> None:
    found = sick(RULE, KEEPING)
    assert found.cost_share == pytest.approx(8 / 18)
    assert any("self.seen.append" in one for one in found.evidence)
    cure = found.prescriptions[0]
    compile(cure.code, RULE, "exec")
    assert (cure.predicted_speedup or 0.0) > 18 / 10 and cure.at_most
    assert named(KEEPING) == [RULE]
    assert diagnose(KEEPING.recording()).bottleneck == "host"


def test_well() -> None:
    assert asked(RULE, KEEPING.but(lines=(replace(NEEDED, share=0.6),))) is None
    assert asked(RULE, KEEPING.but(lines=(NEEDED, replace(KEPT, share=0.02)))) is None
    assert asked(RULE, KEEPING.but(lines=(NEEDED, replace(KEPT, beside="step")))) is None, "a forward too many"
    assert diagnose(KEEPING.but(lines=(NEEDED,)).recording()).bottleneck == "compute"


def test_two_looks_tell_nothing() -> None:
    for looks, told in ((100, True), (4, False)):
        recording = replace(KEEPING.recording(), looks=looks)
        assert (rule(RULE).check(measure(recording)) is not None) == told


def test_behind_a_busy_gpu_it_is_free() -> None:
    """It stalls the device inside of the step, whose forward then takes longer on the device's own clock."""
    loop = on_gpu(forward=12.0, lines=(NEEDED, KEPT), queue_empty=1.0)
    recording = loop.recording()
    recording = replace(recording, steps=replace(recording.steps, gpu_forward_s=recording.steps.gpu_s * 0.3))
    stalled = measure(recording)
    found = rule(RULE).check(stalled)
    assert found is not None and stalled.gpu_forward_share is not None
    assert found.cost_share == pytest.approx(stalled.gpu_forward_share)
    assert asked(RULE, loop.but(queue_empty=0.0)) is None
