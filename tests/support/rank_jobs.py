"""A job of several ranks by gloo on the CPU, as torchrun starts it: `torchrun ... rank_jobs.py SCENE [FOLDER]`.

With a folder each rank is watched and leaves its recording there; without one the job is timed bare. Rank 0 prints a
JSON line with the seconds of a step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import gpu_doctor

SCENES = ("equal", "late-data", "late-forward", "same-samples", "own-orders", "uneven", "killed")
SAMPLES, BATCH, LATE_S, EVEN_S = 640, 8, 0.020, 0.005


class Vectors(Dataset[Tensor]):
    """Random vectors; the first of each batch takes a while, on a late rank longer."""

    def __init__(self, samples: int, pause_s: float) -> None:
        """`pause_s` is a batch's."""
        self._data, self._pause_s = torch.rand(samples, 64, generator=torch.Generator().manual_seed(7)), pause_s
        self._taken = 0

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Tensor:
        if self._taken % BATCH == 0:
            time.sleep(self._pause_s)
        self._taken += 1
        return self._data[index]


class Net(nn.Module):
    """Two layers, and a pause."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self._layers, self._pause_s = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), pause_s

    def forward(self, inputs: Tensor) -> Tensor:
        """Sleeps first."""
        time.sleep(self._pause_s)
        result: Tensor = self._layers(inputs)
        return result


def loader_of(scene: str, rank: int) -> DataLoader[Tensor]:
    """Each rank's part, or what a scene makes of it."""
    late = scene == "late-data" and rank == 1
    samples = SAMPLES // 2 if scene == "uneven" and rank == 1 else SAMPLES
    dataset = Vectors(samples, EVEN_S + (LATE_S if late else 0.0))
    if scene in ("same-samples", "own-orders"):
        return DataLoader(dataset, BATCH, shuffle=True)
    if scene == "uneven":  # as many steps on each rank, of fewer samples
        return DataLoader(dataset, BATCH * samples // SAMPLES, shuffle=True)
    return DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset))


def train(scene: str, rank: int) -> float:
    """Two epochs; returns the seconds of a step, the first five left out."""
    torch.manual_seed(rank if scene == "own-orders" else 0)
    late = scene == "late-forward" and rank == 1
    model = DistributedDataParallel(Net(LATE_S if late else 0.0))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    ends: list[float] = []
    loader = loader_of(scene, rank)
    for _ in range(2):
        for inputs in loader:
            if scene == "killed" and rank == 1 and len(ends) == 12:
                os.kill(os.getpid(), signal.SIGKILL)
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
    return (ends[-1] - ends[4]) / (len(ends) - 5)


def main(scene: str, folder: str | None) -> None:
    """One rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    watched: AbstractContextManager[Any] = gpu_doctor.watch(folder=folder) if folder else nullcontext()
    with watched:
        step_s = train(scene, rank)
    if rank == 0:
        sys.stdout.write(json.dumps({"scene": scene, "step_s": step_s}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
