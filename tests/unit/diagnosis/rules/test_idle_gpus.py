"""idle-gpus: one busy GPU trains alone beside idle ones."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import ModelFacts, World
from tests.support.found import asked, named, sick
from tests.support.recordings import on_gpu, read, with_more

RULE = "idle-gpus"
ALONE = World(visible_gpus=4)
BUSY = on_gpu(setup={"world": ALONE})


@pytest.mark.parametrize(("gpus", "said"), [(2, "1 of 2 GPUs does nothing"), (8, "7 of 8 GPUs do nothing")])
def test_sick(gpus: int, said: str) -> None:
    loop = on_gpu(setup={"world": World(visible_gpus=gpus)})
    found = sick(RULE, loop)
    assert found.headline.startswith(said)
    assert found.kind == "hint" and not found.risk, "what more GPUs would save is not measured"
    assert [one.predicted_speedup for one in found.prescriptions] == [None]
    assert named(loop) == [RULE]


@pytest.mark.parametrize("gpus", [2, 8])
def test_what_was_measured_stands_first(gpus: int) -> None:
    waiting = on_gpu(wait=1.0, gpu_gap=1.0, setup={"world": World(visible_gpus=gpus)}).recording()
    held = {"clock_limit_bits": 0x2, "sm_clock_mhz": 1780, "sm_clock_max_mhz": 1980, "gpu_util_pct": 95}
    names = named(read(waiting, 0, **held))  # type: ignore[arg-type]
    assert "capped-clocks" in names and names[-1] == RULE


def test_predictions_are_shared_out_and_nothing_is_reduced() -> None:
    (cure,) = sick(RULE, BUSY.but(backward=0.0, optimizer=0.0, setup={"world": ALONE, "optimizers": ()})).prescriptions
    assert "Parallel" not in cure.code and not cure.changes and "predict" in cure.text
    compile(cure.code.replace("...", "batch_size=4"), RULE, "exec")


def test_well() -> None:
    assert asked(RULE, on_gpu(setup={"world": World(visible_gpus=1)})) is None
    assert asked(RULE, on_gpu(setup={"world": World(world_size=4, visible_gpus=4)})) is None


def test_a_gpu_that_waits_for_data_needs_no_second_one() -> None:
    assert asked(RULE, BUSY.but(wait=30.0, gpu_gap=30.0, gpu_util=25.0)) is None


def test_a_model_over_several_gpus_uses_them() -> None:
    both = ModelFacts(device_bytes={"cuda:0": 100, "cuda:1": 100})
    assert asked(RULE, on_gpu(setup={"world": World(visible_gpus=2), "model": both})) is None
    parallel = ModelFacts(device_bytes={"cuda:0": 100}, wrapper="DataParallel")
    assert asked(RULE, on_gpu(setup={"world": ALONE, "model": parallel})) is None


def test_gpus_on_which_others_work_are_not_idle() -> None:
    recording = BUSY.recording()
    util = recording.one_series("gpu_util_pct", 0)
    assert util is not None
    others = [
        type(util)(type(util.metric)(**{**vars(util.metric), "device": n}), util.times_s, util.values) for n in (1, 2)
    ]
    found = sick(RULE, with_more(BUSY, series=(*recording.series, *others)))
    assert found.headline.startswith("1 of 2 GPUs does nothing")
