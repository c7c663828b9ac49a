"""Two real processes that train together by gloo on the CPU, each under `gpu_doctor.watch()`; prints what each saw.

Usage: python ranks_apart.py SCENE, with a scene of `SCENES`. One JSON line per rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import gpu_doctor

WORLD = 2
SCENES = ("plain", "straggler", "accumulating", "no-sync", "ends-inside")


class Rows(Dataset[Any]):
    """Samples that take a while."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __len__(self) -> int:
        return 240

    def __getitem__(self, at: int) -> Any:
        time.sleep(self.ms * 1e-3)
        return torch.full((64,), float(at)), torch.zeros(1)


def train(rank: int, scene: str) -> None:
    """Thirty steps or micro-batches of eight samples, a mean over the ranks every step, a barrier at the end."""
    late = scene == "straggler" and rank == 1
    loader = DataLoader(Rows(2.0 if late else 0.25), batch_size=8)
    wide = 1200 if scene in ("accumulating", "no-sync") else 64
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, wide), nn.ReLU(), nn.Linear(wide, wide)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    every = 3 if scene in ("accumulating", "no-sync") else 1
    for at, (x, _) in enumerate(loader):
        last = (at + 1) % every == 0
        with model.no_sync() if scene == "no-sync" and not last else contextlib.nullcontext():
            loss = model(x).square().mean()
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            mean = loss.detach()
            dist.all_reduce(mean)
    dist.barrier()
    if scene == "ends-inside":
        dist.destroy_process_group()


def work(rank: int, scene: str, port: int) -> None:
    """One rank."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    before = dist.all_reduce
    with gpu_doctor.watch() as run:
        train(rank, scene)
    assert dist.all_reduce is before
    recording = run.recording
    assert recording is not None
    world = recording.setup.world
    assert world is not None
    said = {
        "rank": world.rank,
        "size": world.world_size,
        "by_rank": world.step_s_by_rank,
        "reduce_s": world.reduce_s,
        "hidden_s": world.reduce_hidden_s,
        "replicated": world.replicated,
        "unsynced": world.unsynced,
        "wrapper": recording.setup.model.wrapper if recording.setup.model else None,
        "chores": [(one.kind, one.calls, one.text) for one in recording.chores or ()],
        "findings": [(one.rule, one.cost_share, one.headline) for one in gpu_doctor.diagnose(recording).findings],
        "waited": gpu_doctor.measure(recording).data_wait_share,
        "notes": recording.notes,
        "steps": len(recording.steps),
        "step_wall_s": gpu_doctor.measure(recording).step_wall_s,
    }
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(work, args=(sys.argv[1], port), nprocs=WORLD)
