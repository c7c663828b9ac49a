"""redundant-forward: a forward of the trained model without gradients, in every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import InputFacts
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "redundant-forward"
IDLE = InputFacts(looked_at=20, shapes=1, shape=(32, 8), per_step=1.0, most_per_step=40)
AGAIN = replace(line("right += (model(x).argmax(1) == y).sum()", 0.28, phase="forward"), no_grad=True)
TWICE = Loop(forward=8.0, lines=(AGAIN,), setup={"idle_inputs": IDLE})
"""8 of 14 ms are forwards, half of them for the accuracy."""


def blind(loop: Loop, part: float = 0.5, **columns: Any) -> Recording:
    """The loop whose forwards recorded no gradients for a part of their time."""
    recording = loop.recording()
    return replace(recording, steps=replace(recording.steps, no_grad_s=part * recording.steps.forward_s, **columns))


def test_sick() -> None:
    found = sick(RULE, blind(TWICE))
    assert found.kind == "at-most" and found.cost_share == pytest.approx(4 / 14)
    assert any("argmax" in one for one in found.evidence)
    for cure in found.prescriptions:
        compile(cure.code, RULE, "exec")
    assert named(blind(TWICE)) == [RULE]


@pytest.mark.parametrize(
    ("loop", "part"),
    [
        (TWICE, 0.0),
        (TWICE, 0.1),
        (TWICE.but(backward=0.0, optimizer=0.0), 0.5),
        (TWICE.but(setup={}), 0.5),
        (TWICE.but(setup={"idle_inputs": IDLE, "optimizers": ("Adam", "Adam")}), 0.5),
        (TWICE.but(has_loader=False), 0.5),
    ],
    ids=["gradients", "below a tenth", "predicts", "a teacher's forward", "a GAN", "rollouts"],
)
def test_well(loop: Loop, part: float) -> None:
    assert asked(RULE, blind(loop, part)) is None


def test_on_a_gpu_it_is_the_device_that_runs_it() -> None:
    """The host is through with 8 of 20 ms of forwards; the device takes as long as its own clock says."""
    loop = on_gpu(forward=8.0, setup={"idle_inputs": IDLE})
    assert asked(RULE, blind(loop)) is None, "nobody read the device's clock by phase"
    found = sick(RULE, blind(loop, gpu_forward_s=loop.recording().steps.gpu_s * 0.4))
    assert found.cost_share == pytest.approx(0.5 * 0.4, rel=0.02)
