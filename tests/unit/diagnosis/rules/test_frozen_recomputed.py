"""frozen-recomputed: a model that nobody trains gives the same results again; of one pass nothing could be saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording.setup import FrozenForward
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "frozen-recomputed"
LOOP = Loop(forward=8.0)
"""8 of 14 ms are forwards."""
TEACHER = FrozenForward("Teacher", calls=64, wall_s=0.0, passes=8.0, output_bytes=4000.0)


def taught(part: float, loop: Loop = LOOP, **changed: object) -> Loop:
    """The loop with a teacher that takes this part of its time."""
    run_s = loop.vitals().run_s or 0.0
    one = replace(TEACHER, wall_s=part * run_s, **changed)  # type: ignore[arg-type]
    return loop.but(setup={"frozen": (one,)})


def test_sick() -> None:
    found = sick(RULE, taught(0.4))
    assert found.cost_share == pytest.approx(0.4 * 7 / 8)
    assert "Teacher" in found.headline and "8 times" in found.evidence[1] and "4 KiB a sample" in found.evidence[2]
    (cure,) = found.prescriptions
    assert found.kind == "at-most" and "augmented" in cure.changes
    compile(cure.code, RULE, "exec")
    assert named(taught(0.4)) == [RULE]


def test_the_dearest_of_several_is_named() -> None:
    loop = taught(0.4)
    small = replace(TEACHER, model="Small", wall_s=1e-3)
    one = loop.recording()
    frozen = (small, *(one.setup.frozen or ()))
    assert "Teacher" in sick(RULE, replace(one, setup=replace(one.setup, frozen=frozen))).headline


def test_well() -> None:
    assert asked(RULE, LOOP.but(setup={"frozen": ()})) is None
    assert asked(RULE, taught(0.05)) is None, "7 of 8 passes are less than a twentieth"
    assert asked(RULE, taught(0.4, passes=1.05)) is None, "hardly a second pass"
    assert asked(RULE, taught(0.4, LOOP.but(backward=0.0, optimizer=0.0))) is None, "a loop that predicts"


def test_it_takes_no_longer_than_all_forwards() -> None:
    assert sick(RULE, taught(0.9)).cost_share == pytest.approx(8 / 14 * 7 / 8)


def test_where_nothing_could_be_compared_it_says_so() -> None:
    silent = {one.rule: one.reason for one in diagnose(LOOP.recording()).silent}
    assert "could be followed" in silent[RULE]
    assert RULE not in {one.rule for one in diagnose(LOOP.but(setup={"frozen": ()}).recording()).silent}


def test_on_a_gpu_it_is_the_device_that_runs_it() -> None:
    """The host's seconds only divide the forward; how long that is the device's own clock says."""
    loop = taught(0.2, on_gpu(forward=8.0))
    assert asked(RULE, loop) is None, "nobody read the device's clock by phase"
    recording = loop.recording()
    recording = replace(recording, steps=replace(recording.steps, gpu_forward_s=recording.steps.gpu_s * 0.4))
    vitals, found = measure(recording), sick(RULE, recording)
    assert vitals.gpu_forward_share and vitals.forward_share
    assert found.cost_share == pytest.approx(vitals.gpu_forward_share * 0.2 / vitals.forward_share * 7 / 8, rel=0.01)


def test_where_launches_limit_a_gpu_it_is_the_hosts_time() -> None:
    loop = taught(0.2, on_gpu(forward=8.0, caught_up=1.0, gpu_util=40.0, gpu_work=5.0))
    assert loop.vitals().gpu_outruns_host
    assert sick(RULE, loop).cost_share == pytest.approx(0.2 * 7 / 8)
