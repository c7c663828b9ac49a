"""slow-generator: batches come from a generator of the user's, which looks found running."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line, on_gpu

RULE = "slow-generator"
MADE = replace(line("yield encode(rows)", 0.5), pulled=True)
MAKING = Loop(has_loader=False, other=10.0, lines=(MADE,))


def test_sick() -> None:
    found = sick(RULE, MAKING)
    assert found.cost_share == pytest.approx(0.5, abs=0.01) and "encode(rows)" in found.headline
    compile(found.prescriptions[0].code, RULE, "exec")
    assert named(MAKING) == [RULE]
    assert diagnose(MAKING.recording()).bottleneck == "host", "batches that the loop makes are no wait for a loader"


def test_well() -> None:
    assert named(MAKING.but(lines=(replace(MADE, pulled=False),))) == ["slow-python"]
    assert asked(RULE, MAKING.but(other=0.5)) is None
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9, lines=(MADE,))) is None
