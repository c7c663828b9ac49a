"""redundant-forward: a forward of a statement that trains nothing, told from the one that is trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.vitals.measure import measure
from tests.support.found import asked, named, rule, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "redundant-forward"
TRAINED = line("loss = criterion(model(x), y)", 0.3, phase="forward")
AGAIN = replace(line("right += (model(x).argmax(1) == y).sum()", 0.3, phase="forward"), beside="step")
TWICE = Loop(forward=8.0, lines=(TRAINED, AGAIN))
"""8 of 14 ms are forwards, half of them for the accuracy."""


def test_sick() -> None:
    found = sick(RULE, TWICE)
    assert found.cost_share == pytest.approx(4 / 14)
    assert any("argmax" in one for one in found.evidence)
    first, seldom = found.prescriptions
    assert 14 / 10 < (first.predicted_speedup or 0.0) < 1.5
    for cure in (first, seldom):
        compile(cure.code, RULE, "exec")
    assert named(TWICE) == [RULE]


def test_well() -> None:
    assert asked(RULE, TWICE.but(lines=(replace(TRAINED, share=0.6),))) is None
    assert asked(RULE, TWICE.but(lines=(TRAINED, replace(AGAIN, share=0.03)))) is None, "below a tenth"
    assert asked(RULE, TWICE.but(lines=(TRAINED, replace(AGAIN, phase="evaluation")))) is None, "heavy-evaluation's"
    assert asked(RULE, TWICE.but(lines=(TRAINED, replace(AGAIN, beside="model")))) is None
    assert asked(RULE, TWICE.but(backward=0.0, optimizer=0.0)) is None, "a loop that predicts"


def test_two_looks_tell_nothing() -> None:
    for looks, told in ((100, True), (8, False)):
        recording = replace(TWICE.recording(), looks=looks)
        assert (rule(RULE).finds(measure(recording)) is not None) == told


def test_on_a_gpu_it_is_the_device_that_runs_it() -> None:
    """The host is through with 8 of 20 ms of forwards; the device takes as long as its own clock says."""
    loop = on_gpu(forward=8.0, lines=(TRAINED, AGAIN))
    assert asked(RULE, loop) is None, "nobody read the device's clock by phase"
    recording = loop.recording()
    steps = replace(recording.steps, gpu_forward_s=recording.steps.gpu_s * 0.4)
    found = rule(RULE).finds(measure(replace(recording, steps=steps)))
    assert found is not None
    assert found.cost_share == pytest.approx(0.5 * (measure(replace(recording, steps=steps)).gpu_forward_share or 0.0))
