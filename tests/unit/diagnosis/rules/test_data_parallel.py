"""data-parallel: DataParallel's copying takes its share."""

from __future__ import annotations

from gpu_doctor.recording.setup import Chore, ModelFacts, World
from tests.support.found import asked, named, sick
from tests.support.recordings import on_gpu, with_more

RULE = "data-parallel"
WRAPPED = ModelFacts(device_bytes={"cuda:0": 100}, wrapper="DataParallel")
LOOP = on_gpu(setup={"model": WRAPPED, "world": World(visible_gpus=4)})
# a hundred steps of 10 ms; 2 ms of each for the copies
COPIED = (Chore("data-parallel", 300, 0.2),)


def test_sick() -> None:
    found = sick(RULE, with_more(LOOP, chores=COPIED))
    assert found.kind == "hint" and "20 %" in found.headline
    assert "over 4 GPUs" in found.evidence[0]
    assert RULE in named(with_more(LOOP, chores=COPIED))


def test_well() -> None:
    assert asked(RULE, with_more(LOOP, chores=())) is None
    assert asked(RULE, with_more(LOOP, chores=(Chore("data-parallel", 300, 0.02),))) is None


def test_other_chores_are_other_rules() -> None:
    assert asked(RULE, with_more(LOOP, chores=(Chore("checkpoint", 3, 0.5),))) is None


def test_one_process_per_gpu_is_the_cure_itself() -> None:
    replicated = ModelFacts(wrapper="DistributedDataParallel")
    assert asked(RULE, with_more(on_gpu(setup={"model": replicated}), chores=COPIED)) is None
