"""Loops of the causes in `rules/distributed/`: GPUs that do nothing."""

from __future__ import annotations

from dataclasses import replace

from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import ModelFacts, World
from tests.support.recordings import Loop, on_gpu, read
from tests.support.rule_loops.form import CauseLoops, Sick


def one_of(gpus: int) -> Loop:
    """Returns a loop that keeps one of so many GPUs busy."""
    return on_gpu(setup={"world": World(visible_gpus=gpus)})


def with_others_at_work(loop: Loop, *devices: int) -> Recording:
    """Returns the loop's recording on a machine where these cards are busy too."""
    recording = loop.recording()
    for device in devices:
        recording = read(recording, device, gpu_util_pct=98.0)
    return recording


WRAPPED = ModelFacts(device_bytes={"cuda:0": 100}, wrapper="DataParallel")
SPREAD = ModelFacts(device_bytes={"cuda:0": 100, "cuda:1": 100})
HELD = {"clock_limit_bits": 0x2, "sm_clock_mhz": 1780.0, "sm_clock_max_mhz": 1980.0, "gpu_util_pct": 95.0}

IDLE_GPUS = CauseLoops(
    "idle-gpus",
    well=one_of(1),
    sick={
        "one of two": Sick(one_of(2), figures=("1 of 2 GPUs",)),
        "seven of eight": Sick(one_of(8), figures=("7 of 8 GPUs",)),
        "what was measured stands first": Sick(
            read(one_of(2).but(wait=1.0, gpu_gap=1.0), 0, **HELD), named=("capped-clocks", "slow-getitem", "idle-gpus")
        ),
        "predictions are shared out, and nothing is reduced": Sick(
            one_of(4).but(backward=0.0, optimizer=0.0, setup={"world": World(visible_gpus=4), "optimizers": ()}),
            unsaid=("DistributedDataParallel",),
        ),
        "GPUs on which others work are not idle": Sick(with_others_at_work(one_of(4), 1, 2), figures=("1 of 2 GPUs",)),
    },
    near={
        "one process for each": on_gpu(setup={"world": World(world_size=4, visible_gpus=4)}),
        "it waits for data": one_of(4).but(wait=30.0, gpu_gap=30.0, gpu_util=25.0),
        "a model over two of them": on_gpu(setup={"world": World(visible_gpus=2), "model": SPREAD}),
        "one process drives all": on_gpu(setup={"world": World(visible_gpus=4), "model": WRAPPED}),
    },
)

DATA_PARALLEL = CauseLoops(
    "data-parallel",
    well=on_gpu(setup={"model": replace(WRAPPED, wrapper="DistributedDataParallel")}),
    sick={
        "its GPUs are not idle": Sick(
            on_gpu(setup={"model": WRAPPED, "world": World(visible_gpus=4)}),
            figures=("4 GPUs",),
            cures=("DistributedDataParallel",),
        )
    },
    near={"no GPU": Loop(setup={"model": WRAPPED})},
)

CAUSES = (IDLE_GPUS, DATA_PARALLEL)
