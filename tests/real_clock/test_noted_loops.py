"""Which loops have a rhythm: their events are noted down, and told to the ledger one by one only at their edges."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording

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


BARE = """
for _ in range({steps}):
    optimizer.zero_grad()
    loss = (x @ weight).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("budget", [{"steps": 200}, {"seconds": 0.3}], ids=["steps", "seconds"])
def test_a_budget_ends_a_noted_loop_that_calls_no_module(budget: dict[str, Any]) -> None:
    weight = torch.randn(8, 2, requires_grad=True)
    names = {"x": torch.randn(64, 8), "weight": weight, "optimizer": torch.optim.SGD([weight], lr=1e-3)}
    recording = gpu_doctor.case(BARE.format(steps=1_000_000), names).run(**budget)
    assert recording.outcome == "budget-reached"
    assert "steps" not in budget or recording.steps.count.sum() in (200, 201)


def test_a_loop_over_arrays_after_a_loader_that_was_left_is_heard() -> None:
    training = Training()

    def body() -> None:
        for i, (x,) in enumerate(training.loader):
            training.learn(x)
            if i == 60:
                break
        for _ in range(300):
            training.learn(training.rows[:BATCH])

    steps = gpu_doctor.case(body, {"model": training.model, "optimizer": training.optimizer}).run().steps
    assert (steps.count.sum(), steps.samples.sum()) == (361, 361 * BATCH)


def test_copies_after_a_noted_loop_are_no_endless_notes() -> None:
    training, recorder = Training(), Recorder()
    with listening(recorder, {"model": training.model, "optimizer": training.optimizer}, accelerated=True):
        for (x,) in training.loader:
            training.learn(x)
            if recorder.pulse.taking and recorder.ledger.step_count > 20:
                break
        assert recorder.pulse.taking
        for _ in range(100):
            training.rows.to("meta")
        assert not recorder.pulse.taking
    recorder.close()


def test_a_wait_now_and_then_in_a_loop_that_copies_is_counted_in_its_rests_too() -> None:
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()  # what other tests compiled: where anything was, no tap rests
    ticks = itertools.count(0, 5_000)
    training, recorder = Training(), Recorder(clock=lambda: next(ticks))  # short steps, on a busy machine too
    recorder.ledger.steady.rests.allowed = True
    there, waits = torch.empty(1, device="meta"), 0
    with listening(recorder, {"model": training.model, "optimizer": training.optimizer}, accelerated=True):
        for _ in range(12):
            for i, (x,) in enumerate(training.loader):
                x.to("meta")
                training.learn(x)
                if i % 40 == 0:
                    waits += 1
                    with contextlib.suppress(RuntimeError):  # there is nothing to read on `meta`
                        there.item()
    recording = recorder.close()
    assert recorder.ledger.steady.rests.rested > 0
    assert np.nansum(recording.steps.syncs) == waits
