"""The device clock against Kineto on the same steps, on seven kinds of loops: gap, busy time, exposed wait and copies.

GPU: not yet run on one. Our marks are compared with a simulated device in tests/unit/capture/test_device_loops.py.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
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


POINTS = 0.03


@pytest.mark.parametrize("name", KINDS)
def test_the_gap_is_kinetos(name: str) -> None:
    seen, true = ran(name, traced=False)
    assert share(seen, "gpu_gap_s") == pytest.approx(true.gap_share, abs=POINTS)


@pytest.mark.parametrize("name", KINDS)
def test_the_busy_time_is_kinetos_where_steps_have_no_pauses_and_its_upper_bound_elsewhere(name: str) -> None:
    seen, true = ran(name, traced=False)
    busy = share(seen, "gpu_s")
    assert busy >= true.busy_share - POINTS
    if KINDS[name].solid:
        assert busy == pytest.approx(true.busy_share, abs=POINTS)


@pytest.mark.parametrize("name", KINDS)
def test_the_exposed_wait_is_kinetos(name: str) -> None:
    seen, true = ran(name, traced=True)
    assert true.exposed_wait_share is not None
    assert share(seen, "exposed_wait_s") == pytest.approx(true.exposed_wait_share, abs=POINTS)


@pytest.mark.parametrize("name", KINDS)
def test_the_exposed_copies_are_kinetos(name: str) -> None:
    seen, true = ran(name, traced=True)
    assert share(seen, "exposed_transfer_s") == pytest.approx(true.exposed_transfer_share, abs=POINTS)


def test_copies_that_the_host_waits_for_take_it_as_long_as_the_device() -> None:
    """On an idle device the host's seconds of transfer are Kineto's of memcpy; behind a queue they are more."""
    seen, true = ran("starved", traced=False)
    assert seen.transfer_s.sum() / seen.wall_s.sum() == pytest.approx(true.memcpy_share, abs=POINTS)
    assert (seen.pageable == 1).all() and (seen.transfer_bytes == 2048 * 4096 * 4).all()
    pinned, true = ran("starved with pinned copies", traced=False)
    assert pinned.transfer_s.sum() / pinned.wall_s.sum() < POINTS
    assert true.memcpy_share > 0 and (pinned.pageable == 0).all()


def test_the_phases_are_those_of_events_put_by_hand() -> None:
    kind = KINDS["compute-bound"]
    model = kind.model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(kind.shape, device="cuda")
    seconds = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    with gpu_doctor.watch() as run:
        for step in range(60):
            at = [torch.cuda.Event(enable_timing=True) for _ in range(6)]
            at[0].record()
            y = model(x)
            at[1].record()
            loss = y.square().mean()
            optimizer.zero_grad()
            at[2].record()
            loss.backward()
            at[3].record()
            at[4].record()
            optimizer.step()
            at[5].record()
            torch.cuda.synchronize()
            for i, phase in enumerate(seconds):
                seconds[phase] += at[2 * i].elapsed_time(at[2 * i + 1]) * 1e-3 if step >= 10 else 0.0
    assert run.recording is not None
    seen = run.recording.steps.rows(10)
    read = seen.device_steps > 0
    assert read.sum() >= 40
    for phase, expected_s in seconds.items():
        assert float(getattr(seen, f"gpu_{phase}_s")[read].mean()) == pytest.approx(expected_s / 50, rel=0.05)


def test_marks_keep_within_their_share() -> None:
    model = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(64, 256, device="cuda")
    with gpu_doctor.watch() as run:
        for _ in range(20_000):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert run.recording is not None
    steps = run.recording.steps
    assert 200 < steps.device_steps.sum() < 10_000
