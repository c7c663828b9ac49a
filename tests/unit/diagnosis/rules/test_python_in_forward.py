"""python-in-forward: statements of a forward on which its output does not depend, or that make the same each time."""

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
ANCHORS = replace(line("boxes.append([x - w, x + w])", 0.4, phase="forward"), beside="constant")
MASKED = replace(line("mask = torch.ones(n, n).tril()", 0.4, phase="forward"), beside="constant", computes=True)


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
        assert (rule(RULE).finds(measure(recording)) is not None) == told


def test_behind_a_busy_gpu_it_is_free() -> None:
    """It stalls the device inside of the step, whose forward then takes longer on the device's own clock."""
    loop = on_gpu(forward=12.0, lines=(NEEDED, KEPT), caught_up=1.0)
    recording = loop.recording()
    recording = replace(recording, steps=replace(recording.steps, gpu_forward_s=recording.steps.gpu_s * 0.3))
    stalled = measure(recording)
    found = rule(RULE).finds(stalled)
    assert found is not None and stalled.gpu_forward_share is not None
    assert found.cost_share == pytest.approx(stalled.gpu_forward_share)
    assert asked(RULE, loop.but(caught_up=0.0)) is None


def test_constants_made_anew() -> None:
    loop = KEEPING.but(lines=(NEEDED, ANCHORS))
    found = sick(RULE, loop)
    assert found.cost_share == pytest.approx(8 / 18)
    assert "makes the same constants anew" in found.headline and "does not need" not in found.headline
    (cure,) = found.prescriptions
    assert "buffer" in cure.text and "register_buffer" in cure.code
    compile(cure.code, RULE, "exec")
    assert diagnose(loop.recording()).bottleneck == "host"


def test_both_are_named_the_dearer_first() -> None:
    found = sick(RULE, KEEPING.but(lines=(NEEDED, replace(ANCHORS, share=0.25), replace(KEPT, share=0.15))))
    constants, needless = "makes the same constants anew", "work that its output does not need"
    assert -1 < found.headline.find(constants) < found.headline.find(needless)
    first, second = found.prescriptions
    assert first.predicted_speedup and "buffer" in first.text
    assert second.predicted_speedup is None and second.text.endswith("(where this applies)")
    found = sick(RULE, KEEPING.but(lines=(NEEDED, replace(ANCHORS, share=0.35), replace(KEPT, share=0.05))))
    assert len(found.prescriptions) == 1


def test_what_torch_computes_on_a_cpu_is_computing() -> None:
    """It is priced all the same: to compute it once is enough."""
    for masked in (MASKED, replace(MASKED, computes=False, in_torch=True)):
        loop = KEEPING.but(lines=(NEEDED, masked))
        assert sick(RULE, loop).cost_share == pytest.approx(8 / 18)
        assert diagnose(loop.recording()).bottleneck == "compute"
