"""data-parallel: one process drives all GPUs."""

from __future__ import annotations

from gpu_doctor.recording.setup import ModelFacts, World
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu

RULE = "data-parallel"
WRAPPED = ModelFacts(device_bytes={"cuda:0": 100}, wrapper="DataParallel")
LOOP = on_gpu(setup={"model": WRAPPED, "world": World(visible_gpus=4)})


def test_sick() -> None:
    found = sick(RULE, LOOP)
    assert found.kind == "hint" and "4 GPUs" in found.headline and not found.risk
    assert "DistributedDataParallel" in found.prescriptions[0].code
    assert named(LOOP) == [RULE], "its GPUs are not idle"


def test_well() -> None:
    assert asked(RULE, on_gpu(setup={"model": ModelFacts(wrapper="DistributedDataParallel")})) is None
    assert asked(RULE, Loop(setup={"model": WRAPPED})) is None
