"""Half precision: fp16 with a scaler and bf16, by hand and by the knob `amp`: how much faster, and the same losses?

By hand means the loop as a person would write it, timed bare in turns; the losses of each way are those of the same
steps from the same weights.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

import gpu_doctor
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.timing import emptied, gain, in_turns, stretch_s

SAME_SPEED: Final = 0.15
"""The knob and the hand-written loop gain the same, to so much."""
SAME_LOSS: Final = 0.05
"""Relative, at the end: what a person would call the same training."""
TURNS: Final = 4
CELL: Final = """
for x, y in loader:
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
KNOBS: Final[dict[str, dict[str, Any]]] = {"bf16": {"amp": "bf16"}, "fp16": {"amp": "fp16"}, "tf32": {"tf32": True}}
DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Training:
    """The same model, data and order of batches each time it is made."""

    def __init__(self, device: str, width: int, batch: int, half: torch.dtype | None = None) -> None:
        torch.manual_seed(0)
        layers = [one for _ in range(4) for one in (nn.Linear(width, width), nn.GELU())]
        self.device, self.half, self.losses = device, half, list[torch.Tensor]()
        self.model = nn.Sequential(*layers, nn.Linear(width, 16)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.x = torch.randn(8 * batch, width)
        self.y = self.x[:, :16].argmax(1)
        self.scaler = torch.amp.GradScaler(device, enabled=half == torch.float16)
        self.batches = [(x.to(device), y.to(device)) for x, y in zip(self.x.chunk(8), self.y.chunk(8), strict=True)]

    def train(self, steps: int) -> None:
        """So many steps, as by hand."""
        for step in range(steps):
            x, y = self.batches[step % 8]
            self.optimizer.zero_grad()
            around = torch.autocast(self.device, dtype=self.half) if self.half else contextlib.nullcontext()
            with around:
                loss = functional.cross_entropy(self.model(x), y)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.losses.append(loss.detach())

    def end_loss(self) -> float:
        """Mean of the last steps."""
        return statistics.fmean(float(one) for one in self.losses[-8:])


def run(stage: Stage) -> None:
    """Each format by hand and by knob; what TF32 gives beside it."""
    width, batch = stage.size(4096, 64), stage.size(2048, 32)
    for name, dtype in DTYPES.items():
        stage.row(f"{name} by hand", partial(by_hand, stage, width, batch, dtype))
    for name, settings in KNOBS.items():
        hand = stage.rows.get(f"{name} by hand", {}).get("figures", {}).get("speedup")
        stage.row(f"{name} by knob", partial(by_knob, stage, width, batch, settings, hand))


def by_hand(stage: Stage, width: int, batch: int, half: torch.dtype) -> Row:
    """Speed in turns, then the losses of the same steps."""
    sides: dict[str, Callable[[], float]] = {}
    warm, steps = stage.size(10, 2), stage.size(40, 4)
    for name, dtype in (("float32", None), ("half", half)):
        sides[name] = partial(stretch_s, Training(stage.device, width, batch, dtype).train, warm, steps, stage.device)
    found = in_turns(sides, stage.size(TURNS, 2))
    sides.clear()
    emptied(stage.device)
    speedup, ends = gain(found["float32"], found["half"]), []
    for dtype in (None, half):
        training = Training(stage.device, width, batch, dtype)
        training.train(stage.size(120, 8))
        ends.append(training.end_loss())
        begin = float(training.losses[0])
    off = abs(ends[1] / ends[0] - 1.0) if ends[0] else float("inf")
    said = (
        f"{1e3 * statistics.median(found['float32']):.2f} to {1e3 * statistics.median(found['half']):.2f} ms a step, "
        f"{speedup:.2f}x; losses from {begin:.4f} to {ends[0]:.4f} and {ends[1]:.4f}"
    )
    close = off <= SAME_LOSS or abs(ends[1] - ends[0]) <= 0.01 * begin
    good = None if stage.rehearse else close and speedup > 1.0
    return row(said, good, speedup=speedup, end_losses=ends, seconds=found)


def by_knob(stage: Stage, width: int, batch: int, settings: dict[str, Any], hand: float | None) -> Row:
    """A trial of the plain loop; what it says, beside what the loop by hand gained."""
    made = Training(stage.device, width, batch)
    loader: Any = torch.utils.data.DataLoader(
        made.batches * stage.size(50, 5),  # type: ignore[arg-type]
        batch_size=None,
    )
    names = {"__name__": "__main__", "loader": loader, "device": stage.device, "criterion": nn.CrossEntropyLoss()}
    names |= {"model": made.model, "optimizer": made.optimizer}
    case = gpu_doctor.case(CELL, names)
    effect = case.trial(settings, steps=stage.size(40, 6), seconds=10.0 if not stage.rehearse else 2.0)
    emptied(stage.device)
    figures = {**effect.to_dict(), "hand": hand}
    if effect.speedup is None:
        return row(f"{effect.outcome}: {effect.reason}", None if stage.rehearse else False, **figures)
    beside = f"; by hand {hand:.2f}x" if hand else ""
    good = not effect.loss_changed and (hand is None or abs(effect.speedup / hand - 1.0) <= SAME_SPEED)
    return row(f"{effect}{beside}", None if stage.rehearse else good, **figures)
