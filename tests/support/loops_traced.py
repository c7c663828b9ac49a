"""Loops on a GPU, their steps as we saw them and as Kineto did.

GPU: not yet run on one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

import gpu_doctor
from gpu_doctor.recording import Steps
from tests.support.device_truth import DeviceTruth, trace, truth

WARM_UP = 40
STEPS = 80


class Late(Dataset[torch.Tensor]):
    """Batches in memory, each of them late."""

    def __init__(self, shape: tuple[int, int], late_s: float, pinned: bool) -> None:
        self.batch, self.late_s = torch.randn(shape), late_s
        if pinned:  # at once: a loader that pins takes the host longer than the copy takes the device
            self.batch = self.batch.pin_memory()

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.late_s:
            time.sleep(self.late_s)
        return self.batch


@dataclass(frozen=True)
class Kind:
    """A loop: its model, its batches, and what the host does after a step."""

    model: Callable[[], nn.Module]
    shape: tuple[int, int]
    late_s: float = 0.0
    after: Callable[[torch.Tensor], Any] = lambda loss: None
    pinned: bool = False
    """Copies out of pinned memory, which the host does not wait for."""
    solid: bool = True
    """The device has no pauses inside of a step."""


def wide(depth: int) -> Callable[[], nn.Module]:
    """Layers that keep the device busy for about a millisecond each, forward and backward."""
    return lambda: nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(depth)])


def tiny() -> nn.Module:
    """Many launches, hardly any work."""
    return nn.Sequential(*[nn.Linear(32, 32) for _ in range(150)])


def read_and_work(loss: torch.Tensor) -> None:
    """A wait for the device, and host work while it has nothing to do."""
    loss.item()
    time.sleep(0.002)


KINDS = {
    "starved": Kind(wide(2), (2048, 4096), late_s=0.010),
    "launch-bound": Kind(tiny, (32, 32), solid=False),
    "sync-bound": Kind(wide(2), (1024, 4096), after=read_and_work),
    "compute-bound": Kind(wide(6), (4096, 4096)),
    "a deep queue that hides the wait": Kind(wide(12), (4096, 4096), late_s=0.002),
    "a deep queue that hides the wait, not the pinned copy": Kind(wide(3), (4096, 4096), late_s=0.010, pinned=True),
    "starved with pinned copies": Kind(wide(2), (2048, 4096), late_s=0.020, pinned=True),
}


@functools.cache
def ran(name: str, traced: bool) -> tuple[Steps, DeviceTruth]:
    """The steps as we saw them and as Kineto did; `traced`: the host's waits too, which slows the launching."""
    kind = KINDS[name]
    model = kind.model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batches = iter(DataLoader(Late(kind.shape, kind.late_s, kind.pinned), batch_size=None))
    kinds = [ProfilerActivity.CUDA, *([ProfilerActivity.CPU] if traced else [])]
    kineto = profile(activities=kinds)
    with gpu_doctor.watch() as run:
        for step in range(WARM_UP + STEPS + 20):
            if step == WARM_UP:
                torch.cuda.synchronize()
                kineto.start()
            if step == WARM_UP + STEPS:
                torch.cuda.synchronize()
                kineto.stop()
            with record_function("wait"):
                batch = next(batches)
            x = batch.to("cuda", non_blocking=kind.pinned)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kind.after(loss)
    assert run.recording is not None
    rows = run.recording.steps
    assert len(rows) == WARM_UP + STEPS + 20
    found = trace(kineto.events(), DeviceType.CUDA, "wait" if traced else None)
    # The first and the last traced step hold our own synchronizing.
    return rows.rows(WARM_UP + 1, WARM_UP + STEPS - 1), truth(found, STEPS)


def share(seen: Steps, column: str) -> float:
    """Of the device's time, over the steps that were marked on it."""
    read = np.isfinite(seen.gpu_gap_s)
    assert read.sum() >= 5, "too few steps were timed on the device"
    return float(getattr(seen, column)[read].sum() / (seen.gpu_gap_s + seen.gpu_s)[read].sum())
