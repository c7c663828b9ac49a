"""Two real processes that train together by gloo on the CPU, each under `gpu_doctor.watch()`; prints what each saw.

Usage: python ranks_apart.py SCENE, with a scene of `SCENES`. One JSON line per rank.
"""

from __future__ import annotations

import json
import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor

WORLD = 2
SCENES = ("plain", "ends-inside")


def train(scene: str) -> None:
    """Thirty steps of eight samples, a mean over the ranks every step, a barrier at the end."""
    loader = DataLoader(TensorDataset(torch.rand(240, 64)), batch_size=8)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for (x,) in loader:
        loss = model(x).square().mean()
        loss.backward()
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
        train(scene)
    assert dist.all_reduce is before
    recording = run.recording
    assert recording is not None
    world = recording.setup.world
    assert world is not None
    said = {
        "rank": world.rank,
        "size": world.world_size,
        "local": world.local_size,
        "wrapper": recording.setup.model.wrapper if recording.setup.model else None,
        "chores": [(one.kind, one.calls, one.text) for one in recording.chores or ()],
        "notes": recording.notes,
        "steps": len(recording.steps),
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
