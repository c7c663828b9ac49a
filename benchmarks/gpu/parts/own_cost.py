"""What our taps and marks cost a step: the loop bare and watched in turns, beside what the recording says itself.

The bare side against itself, measured the same way, says how far such a figure can be trusted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader

import gpu_doctor
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.timing import costs, emptied, in_turns, stretch_s
from tests.support.turns import scaled

BUDGET: Final = 0.01
"""Of a step of 5 ms (DESIGN's aim)."""
SURE: Final = 0.005
"""Quartiles of the bare loop against itself that lie further apart make a figure no proof."""
TURNS: Final = 7


@dataclass(frozen=True)
class Kind:
    """A loop by what its step takes on the device; no `step_s`: as it is."""

    step_s: float | None
    depth: int
    width: int
    batch: int


KINDS: Final = {
    "5 ms of work": Kind(0.005, 6, 2048, 1024),
    "1 ms of work": Kind(0.001, 4, 1024, 512),
    "101 tiny layers": Kind(None, 101, 32, 32),
}


class Loop:
    """A plain loop on one batch that lies on the host, pinned where there is a card."""

    def __init__(self, kind: Kind, device: str) -> None:
        layers = [one for _ in range(kind.depth) for one in (nn.Linear(kind.width, kind.width), nn.ReLU())]
        self.device, self.model = device, nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        batch = torch.randn(kind.batch, kind.width)
        self.batch = batch.pin_memory() if device == "cuda" else batch

    def train(self, steps: int) -> None:
        """So many steps."""
        for x in DataLoader([self.batch] * steps, batch_size=None):  # type: ignore[arg-type]
            self.optimizer.zero_grad()
            loss = self.model(x.to(self.device, non_blocking=True)).square().mean()
            loss.backward()
            self.optimizer.step()


def run(stage: Stage) -> None:
    """A row a loop."""
    for name, kind in KINDS.items():
        needs_s = 2.0 if stage.rehearse else 12.0
        stage.row(name, partial(measured, kind, stage), needs_s)


def fitted(kind: Kind, device: str) -> Kind:
    """With the batch that makes the step as long as it should be on this card."""
    batch = kind.batch
    for _ in range(3 if kind.step_s else 0):
        took = stretch_s(Loop(Kind(None, kind.depth, kind.width, batch), device).train, 20, 40, device)
        batch = scaled(batch, took, kind.step_s or took, least=16)
    return Kind(None, kind.depth, kind.width, batch)


def measured(kind: Kind, stage: Stage) -> Row:
    """Bare, bare again, and watched, in turns."""
    small = Kind(None, min(kind.depth, 4), 32, 16)
    loop = Loop(small if stage.rehearse else fitted(kind, stage.device), stage.device)
    steps, warm = stage.size(150, 5), stage.size(100, 3)
    told_us: list[float] = []

    def bare() -> float:
        return stretch_s(loop.train, warm, steps, stage.device)

    def watched() -> float:
        with gpu_doctor.watch() as found:
            spent = bare()
        assert found.recording is not None
        seen = int(found.recording.steps.count.sum())
        if seen != warm + steps:
            raise RuntimeError(f"gpu_doctor recorded {seen} steps of {warm + steps}")
        told_us.append(1e6 * found.recording.overhead_s / seen)
        return spent

    sides: dict[str, Callable[[], float]] = {"bare": bare, "again": bare, "watched": watched}
    found = in_turns(sides, stage.size(TURNS, 4))
    emptied(stage.device)
    return _said(found, told_us, kind.step_s, stage.rehearse)


def _said(found: dict[str, list[float]], told_us: list[float], wanted_s: float | None, rehearse: bool) -> Row:
    ours, noise = costs(found["bare"], found["watched"]), costs(found["bare"], found["again"])
    step_s = statistics.median(found["bare"])
    over_us = 1e6 * ours.median * step_s
    said = (
        f"{1e3 * step_s:.2f} ms a step; watched {ours}, {over_us:+.0f} us; bare against itself {noise}; "
        f"the recording says {statistics.median(told_us):.0f} us of CPU"
    )
    figures: dict[str, Any] = {"step_ms": 1e3 * step_s, "over_us": over_us, "told_us": told_us, "seconds": found}
    judged = not rehearse and wanted_s is not None and wanted_s >= 0.005 and noise.high - noise.low <= 2 * SURE
    return row(said, ours.median <= BUDGET if judged else None, **figures)
