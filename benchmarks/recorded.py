"""Step times of real training loops, recorded once: what a comparison makes of them against themselves.

Each loop is run again and again, as the sides of trials are, with all that the machine does meanwhile. A trial takes
runs that followed each other in turns (A B B A); a true speed-up is one side's times divided by it.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gpu_doctor
from gpu_doctor.diagnosis import warmup_rows
from gpu_doctor.recording import Steps
from gpu_doctor.trials.compare.effect import MEASURED_S
from gpu_doctor.trials.compare.ratio import PairLog, Stretch
from gpu_doctor.trials.rounds import LASTING, LONGER_AFTER, MOST_DOUBLED

Loader: TypeAlias = "DataLoader[Any]"
SECONDS = 45.0
"""Of each loop, about."""
STEPS = 50
"""Of a run, or as many as last long enough to be judged."""


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


def _plain(model: nn.Module, beside: Callable[[int], object] = lambda step: None) -> Callable[[Loader, int], None]:
    optimizer, criterion = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()

    def some(loader: Loader, steps: int) -> None:
        for step, (x, y) in enumerate(islice(chain.from_iterable(repeat(loader)), steps)):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            beside(step)

    return some


def loops(folder: Path) -> Iterator[tuple[str, Callable[[int], None]]]:
    """Name of each loop, and what runs some steps of it."""
    small = _plain(_mlp(64))
    rows = DataLoader(_rows(64, 64 * 512), batch_size=64, shuffle=True)
    yield "MLP, rows in memory", lambda steps: small(rows, steps)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(16 * 28 * 28, 8))
    images = TensorDataset(torch.randn(16 * 256, 3, 32, 32), torch.randint(0, 8, (16 * 256,)))
    convolutions, pictures = _plain(net), DataLoader(images, batch_size=16, shuffle=True)
    yield "convolutions", lambda steps: convolutions(pictures, steps)
    parsing, texts = _plain(_mlp(256)), DataLoader(Parsed(32 * 512), batch_size=32, shuffle=True, num_workers=2)
    yield "texts parsed by two workers", lambda steps: parsing(texts, steps)
    inline, again = _plain(_mlp(64)), DataLoader(Parsed(16 * 512), batch_size=16, shuffle=True)
    yield "texts parsed in the loop", lambda steps: inline(again, steps)
    kept = _mlp(256)

    def save(step: int) -> None:
        if step % 25 == 24:
            torch.save(kept.state_dict(), folder / "kept.pt")

    saving = _plain(kept, save)
    yield "MLP, saved every 25 steps", lambda steps: saving(rows, steps)


def recorded(seconds: float = SECONDS) -> Iterator[tuple[str, list[Stretch]]]:
    """Name of every loop and its runs, one after the other, each without its warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        for name, some in loops(Path(folder)):
            warm = _run(name, some, STEPS)
            usual = float(np.median(warm.wall_s / warm.count))
            steps = max(STEPS, math.ceil(LASTING * MEASURED_S / usual))
            until, runs = time.perf_counter() + seconds, list[Stretch]()
            while time.perf_counter() < until:
                rows = _run(name, some, steps)
                rows = rows.rows(warmup_rows(rows))
                runs.append(Stretch(rows.wall_s, rows.count))
            yield name, runs


def _run(name: str, some: Callable[[int], None], steps: int) -> Steps:
    with gpu_doctor.watch(name) as run:
        some(steps)
    assert run.recording is not None
    return run.recording.steps


class Turns:
    """Pairs of runs that followed each other, as the sides of a trial do."""

    def __init__(self, runs: list[Stretch]) -> None:
        self.runs = runs
        self._made: dict[tuple[int, int], PairLog] = {}

    def pair(self, begin: int, number: int, speedup: float = 1.0) -> PairLog:
        """Pair `number` of a trial that begins with run `begin`: A B, then B A; behind the last run comes the first.

        Later pairs are longer, as in a trial (`rounds.LONGER_AFTER`): their runs are several recorded ones in a row.
        """
        times = [2 ** min(pair // LONGER_AFTER, MOST_DOUBLED) for pair in range(number + 1)]
        one = self._of((begin + 2 * sum(times[:-1])) % len(self.runs), times[-1])
        sides = (one.candidate, one.baseline) if number % 2 else (one.baseline, one.candidate)
        return replace(one, baseline=sides[0], candidate=sides[1] + math.log(speedup), number=number)

    def _of(self, at: int, times: int) -> PairLog:
        if (at, times) not in self._made:
            rows = [self.runs[(at + further) % len(self.runs)] for further in range(2 * times)]
            self._made[at, times] = PairLog.of(_joined(rows[:times]), _joined(rows[times:]))
        return self._made[at, times]


def _joined(runs: list[Stretch]) -> Stretch:
    return Stretch(np.concatenate([one.wall_s for one in runs]), np.concatenate([one.amount for one in runs]))
