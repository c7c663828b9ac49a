"""Which loops have a rhythm: their events are noted down, and told to the ledger one by one only at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.recorder import Recorder
from gpu_doctor.recording import Recording
from gpu_doctor.taps import listening

EPOCHS, BATCHES, BATCH = 3, 160, 4
MOSTLY = 0.9
"""Of the events; an epoch's first step or two are told."""


class Training:
    """A small model, its optimizer, two loaders over the same rows."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.rows = torch.randn(BATCHES * BATCH, 8)
        self.loader = DataLoader(TensorDataset(self.rows), batch_size=BATCH)
        self.other = DataLoader(TensorDataset(self.rows), batch_size=2)

    def learn(self, *batches: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = sum((self.model(x).square().mean() for x in batches), torch.zeros(()))
        loss.backward()
        self.optimizer.step()
        return loss


def plain(t: Training) -> None:
    for (x,) in t.loader:
        t.learn(x)


def zipped(t: Training) -> None:
    for (x,), (y,) in zip(t.loader, t.other, strict=False):
        t.learn(x, y)


def nested(t: Training) -> None:
    """A second iterator beside the loop's own, begun anew where it ends (semi-supervised training)."""
    beside = iter(t.other)
    for (x,) in t.loader:
        try:
            (y,) = next(beside)
        except StopIteration:
            beside = iter(t.other)
            (y,) = next(beside)
        t.learn(x, y)


def moved(t: Training) -> None:
    for (x,) in t.loader:
        x.to("meta")
        x.to("meta", non_blocking=True)
        t.learn(x)


def moved_and_read(t: Training) -> None:
    for (x,) in t.loader:
        there = x.to("meta")
        t.learn(x)
        try:
            there.sum().item()
        except RuntimeError:  # what a real device would wait for
            pass


def on_arrays(t: Training) -> None:
    for i in range(BATCHES):
        t.learn(t.rows[i * BATCH : (i + 1) * BATCH])


def on_moved_arrays(t: Training) -> None:
    for i in range(BATCHES):
        x = t.rows[i * BATCH : (i + 1) * BATCH]
        x.to("meta")
        t.learn(x)


def accumulated(t: Training) -> None:
    for i, (x,) in enumerate(t.loader, 1):
        t.model(x).mean().backward()
        if i % 4 == 0:
            t.optimizer.step()
            t.optimizer.zero_grad()


def watched(body: Callable[[Training], None], accelerated: bool) -> tuple[float, Recording]:
    """The share of the loop's events that were noted down, and its recording; rests are left out."""
    training, recorder = Training(), Recorder()
    names: dict[str, Any] = {"model": training.model, "optimizer": training.optimizer}
    recorder.ledger.steady.rests.allowed = False
    with listening(recorder, names, accelerated=accelerated):
        for _ in range(EPOCHS):
            body(training)
    recording = recorder.close()
    return recorder.ledger.steady.noted / recorder.ledger.events, recording


@pytest.mark.parametrize("body", [plain, zipped, nested, accumulated, on_arrays], ids=lambda body: str(body.__name__))
def test_nearly_all_events_of_a_loop_are_noted(body: Callable[[Training], None]) -> None:
    share, recording = watched(body, accelerated=False)
    assert share > MOSTLY
    steps = EPOCHS * BATCHES / (4 if body is accumulated else 1)
    assert recording.steps.count.sum() == steps
    assert recording.steps.samples.sum() == EPOCHS * BATCHES * BATCH, "those of the loader that gives most"


@pytest.mark.parametrize("body", [moved, moved_and_read, on_moved_arrays], ids=lambda body: str(body.__name__))
def test_a_loop_that_copies_its_batches_and_reads_its_loss_is_noted_too(body: Callable[[Training], None]) -> None:
    share, recording = watched(body, accelerated=True)
    assert share > MOSTLY
    steps = recording.steps
    assert steps.count.sum() == EPOCHS * BATCHES
    # Where nothing is pulled the loop begins with its first forward: what was copied for that came before.
    copies = (2 if body is moved else 1) * EPOCHS * BATCHES - (body is on_moved_arrays)
    assert steps.transfers.sum() == copies
    assert steps.transfer_bytes.sum() == copies * BATCH * 8 * 4
    assert np.nansum(steps.syncs) == (EPOCHS * BATCHES if body is moved_and_read else 0)
    assert np.count_nonzero(steps.transfer_s) >= EPOCHS * BATCHES - 1
