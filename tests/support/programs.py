"""What the frameworks' programs are made of: parts that count and time themselves, and what was counted by hand.

The parts do what a user's own parts do (a Dataset, a Module, an Optimizer); the frameworks are used as their manuals
say and are not changed. Work is slept, so that the truth is unambiguous on a busy machine.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

ITEM_S, FORWARD_S, BACKWARD_S, OPTIMIZER_S = 0.0005, 0.003, 0.003, 0.004
BATCH = 4
TRAIN, HELD_OUT, EPOCHS, EVERY = 46, 12, 3, 2
"""Samples trained on and held out, epochs, and batches that make one optimizer step."""


class Hand:
    """What really happened, counted by the parts themselves and independent of anything that listens."""

    def __init__(self) -> None:
        self.steps = 0
        self.samples = 0
        """Samples that went through a forward which gradients were taken of."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.first: defaultdict[str, float] = defaultdict(float)
        """What of `seconds` lies before the end of the first optimizer step."""
        self.stepped_at: list[float] = []
        """The moment of each optimizer step, by `time.perf_counter`."""
        self.evaluating = False
        self.whole_backward = False
        """The program times the whole backward pass itself: the part that is slept for is not counted twice."""

    @contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """What runs meanwhile is `phase`; in an evaluation it is `evaluated`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds["evaluated" if self.evaluating else phase] += time.perf_counter() - begin

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """All that runs meanwhile is evaluation."""
        begin, self.evaluating = time.perf_counter(), True
        try:
            yield
        finally:
            self.evaluating = False
            self.seconds["evaluation"] += time.perf_counter() - begin

    def stepped(self) -> None:
        """An optimizer has stepped."""
        self.steps += 1
        self.stepped_at.append(time.perf_counter())
        if self.steps == 1:
            self.first = self.seconds.copy()


class Items(Dataset[Any]):
    """`n` samples of 4 features, each slept for; a dict where `named` (as transformers wants it)."""

    def __init__(self, n: int, hand: Hand, item_s: float = ITEM_S, named: bool = False) -> None:
        self.n, self.hand, self.item_s, self.named = n, hand, item_s, named

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        with self.hand.time("data_wait"):
            time.sleep(self.item_s)
        x, y = torch.full((4,), index / self.n), torch.tensor(index % 2)
        return {"x": x, "labels": y} if self.named else (x, y)


class Collate:
    """torch's own collate, timed."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand

    def __call__(self, items: list[Any]) -> Any:
        """A batch of samples."""
        with self.hand.time("data_wait"):
            return default_collate(items)


class _Nap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, hand: Hand) -> torch.Tensor:
        ctx.hand = hand
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        with ctx.hand.time("in backward" if ctx.hand.whole_backward else "backward"):
            time.sleep(BACKWARD_S)
        return grads[0], None


class Net(nn.Module):
    """Two layers with dropout; forward and backward are slept for, and timed where they run."""

    def __init__(self, hand: Hand) -> None:
        super().__init__()
        self.hand = hand
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.hand.time("forward"):
            time.sleep(FORWARD_S)
            out: torch.Tensor = self.layers(x)
        if not torch.is_grad_enabled():
            return out
        self.hand.samples += len(x)
        apply: Any = _Nap.apply
        napped: torch.Tensor = apply(out, self.hand)
        return napped


class Slow(torch.optim.SGD):
    """SGD whose step is slept for, timed without its closure, and counted."""

    def __init__(self, parameters: Any, hand: Hand, lr: float = 0.05) -> None:
        super().__init__(parameters, lr=lr)
        self.hand = hand

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self.hand.time("optimizer"):
            time.sleep(OPTIMIZER_S)
            super().step()
        self.hand.stepped()
        return loss


@dataclass
class Plan:
    """One program's sizes, so that the same program serves every check."""

    hand: Hand = field(default_factory=Hand)
    item_s: float = ITEM_S
    workers: int = 0
    epochs: int = EPOCHS
    every: int = EVERY
    samples: int = TRAIN
    batch: int = BATCH
    folder: str = ""
    """Where the framework may write."""
    sanity: bool = True
    """Whether a pass over some held-out batches comes before the training, where the framework knows such a thing."""

    def loader(self) -> DataLoader[Any]:
        """What is trained from."""
        data = Items(self.samples, self.hand, self.item_s)
        collate = Collate(self.hand)
        return DataLoader(data, batch_size=self.batch, shuffle=True, num_workers=self.workers, collate_fn=collate)

    def held_out(self) -> DataLoader[Any]:
        """What is evaluated."""
        return DataLoader(Items(HELD_OUT, self.hand), batch_size=BATCH)


Program = Callable[[Plan], nn.Module]
"""Trains and returns the trained model."""


def loss_of(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The loss of a batch."""
    return nn.functional.cross_entropy(out, y)
