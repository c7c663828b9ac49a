"""Step times of real training loops, recorded once: what a comparison makes of them against themselves.

A loop is recorded over thousands of steps, with all that the machine does meanwhile. Every trial takes the next
stretches in turns (A B A B), as the sides of a real trial do; a true speed-up is one side's times divided by it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gpu_doctor
from gpu_doctor.recording import Recording, Steps

Loader: TypeAlias = "DataLoader[Any]"
SECONDS = 30.0
"""Of each recording, about."""


class Parsed(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows of text that are parsed when they are asked for."""

    def __init__(self, rows: int) -> None:
        self.rows = [" ".join(str(i % (k + 7)) for i in range(64)) for k in range(rows)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = [float(one) for one in self.rows[index].split()]
        return torch.tensor(numbers), torch.tensor(index % 8)


def _rows(width: int, number: int) -> TensorDataset:
    return TensorDataset(torch.randn(number, width), torch.randint(0, 8, (number,)))


def _mlp(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 8))


def _plain(model: nn.Module, beside: Callable[[int], object] = lambda step: None) -> Callable[[Loader], None]:
    optimizer, criterion = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()

    def epoch(loader: Loader) -> None:
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            beside(step)

    return epoch


def loops(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and one epoch of each loop."""
    small = _plain(_mlp(64))
    rows = DataLoader(_rows(64, 64 * 512), batch_size=64, shuffle=True)
    yield "MLP, rows in memory", lambda: small(rows)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 28 * 28, 8))
    images = TensorDataset(torch.randn(16 * 256, 3, 32, 32), torch.randint(0, 8, (16 * 256,)))
    convolutions, pictures = _plain(net), DataLoader(images, batch_size=16, shuffle=True)
    yield "convolutions", lambda: convolutions(pictures)
    parsing, texts = _plain(_mlp(256)), DataLoader(Parsed(32 * 512), batch_size=32, shuffle=True, num_workers=2)
    yield "texts parsed by two workers", lambda: parsing(texts)
    inline, again = _plain(_mlp(64)), DataLoader(Parsed(16 * 512), batch_size=16, shuffle=True)
    yield "texts parsed in the loop", lambda: inline(again)
    kept = _mlp(256)

    def save(step: int) -> None:
        if step % 25 == 24:
            torch.save(kept.state_dict(), folder / "kept.pt")

    saving = _plain(kept, save)
    yield "MLP, saved every 25 steps", lambda: saving(rows)


def recorded() -> Iterator[tuple[str, Steps]]:
    """Name and steps of every loop, without those at the begin of its epochs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, epoch in loops(Path(folder)):
            with gpu_doctor.watch(name) as first:
                epoch()
            assert first.recording is not None
            times = max(round(SECONDS / first.recording.duration_s), 1)
            walls = []
            for _ in range(times):
                with gpu_doctor.watch(name) as run:
                    epoch()
                assert run.recording is not None
                steps = run.recording.steps
                walls.append(np.asarray(steps.wall_s / steps.count)[8:])
            together = np.concatenate(walls)
            yield name, Steps.of(wall_s=together, samples=np.full(len(together), 32.0))


def trials(steps: Steps, length: int, speedup: float, most: int) -> Iterator[Callable[[bool, int], Recording]]:
    """For each trial, what gives its next side: the stretch of so many steps that follows in the recording."""
    stretches = iter(np.split(steps.wall_s[: len(steps) // length * length], len(steps) // length))
    left = len(steps) // length

    def once(candidate: bool, number: int) -> Recording:
        nonlocal left
        left -= 1
        wall = next(stretches) / (speedup if candidate else 1.0)
        rows = Steps.of(wall_s=wall, samples=np.full(length, 32.0))
        return Recording(rows, outcome="budget-reached", duration_s=float(wall.sum()))

    while left >= 2 * most:
        yield once
