"""Timed loops on a GPU: batches are copied to it, and values are waited for. They run under `SimulatedCuda`."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from tests.support.loop_parts import (
    BATCH,
    OTHER_S,
    Items,
    Net,
    Timed,
    Truth,
    backed,
    given_back,
    loss_of,
    nap,
    sgd,
    updated,
)

LOOPS: Final = Timed()
WIDTH: Final = 100_000
"""Numbers in a sample: a batch is 2.4 MB."""


class Wide(Items):
    """Samples that are large."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One of WIDTH numbers."""
        _, y = super().__getitem__(index)
        return torch.full((WIDTH,), index / self.n), y


def wide(t: Truth, n: int = 30, role: str = "training") -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """`n` large samples in batches of BATCH."""
    return DataLoader(t.loads(role, Wide(n)), batch_size=BATCH)


class Thin(Net):
    """Of a sample only the beginning is used; with `reads`, a value of it is brought to the host in the forward."""

    def __init__(self, t: Truth, reads: bool = False) -> None:
        super().__init__()
        self.t, self.reads = t, reads
        t.namespace["model"] = self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As `Net`."""
        x = x[:, :4]
        if self.reads:
            highest = x.max()
            self.t.lap("forward")
            value = highest.item()
            self.t.waited()
            x = x / max(value, 1.0)
        return super().forward(x)


def copied(t: Truth, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both on the device."""
    there = x.to("cuda"), y.to("cuda")
    t.copied(x, y)
    return there


def step(
    t: Truth, model: Thin, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """All of a training step but its end; the output and the loss."""
    optimizer.zero_grad()
    t.lap("optimizer")
    out, loss = backed(t, model, x, y)
    optimizer.step()
    t.lap("optimizer")
    return out.detach(), loss.detach()


def learn_all(t: Truth, model: Thin, optimizer: torch.optim.Optimizer, batches: Any, epochs: int = 2) -> None:
    """Copies every batch and trains on it, over so many epochs."""
    for _ in t.epochs(epochs):
        for x, y in batches:
            t.got()
            there = copied(t, x, y)
            del x, y
            given_back(t)
            step(t, model, optimizer, *there)
            del there
            given_back(t)
            t.step(BATCH)


@LOOPS.add("copies", "on_device")
@LOOPS.add("items in the forward", "on_device", reads=True)
def copies(t: Truth, reads: bool = False) -> None:
    """A batch's tensors are copied, one call each; with `reads`, the forward waits for a value, which is no forward."""
    model = Thin(t, reads).to("cuda")
    optimizer, batches = sgd(model), wide(t)
    t.start()
    learn_all(t, model, optimizer, batches)


@LOOPS.add("copies into a buffer", "on_device")
def copies_into_a_buffer(t: Truth) -> None:
    """Batches are copied into tensors that are there already, as for a captured graph."""
    model = Thin(t).to("cuda")
    optimizer, batches = sgd(model), wide(t)
    place = torch.empty(BATCH, WIDTH, device="cuda"), torch.zeros(BATCH, dtype=torch.int64, device="cuda")
    t.start()
    for x, y in batches:
        t.got()
        place[0].copy_(x)
        place[1].copy_(y)
        t.copied(x, y)
        del x, y
        given_back(t)
        step(t, model, optimizer, *place)
        t.step(BATCH)


@LOOPS.add("items", "on_device")
def items(t: Truth) -> None:
    """The loss is read after each step, a list of outputs after every third."""
    model = Thin(t).to("cuda")
    optimizer, batches = sgd(model), wide(t)
    t.start()
    for _ in t.epochs(2):
        for i, (x, y) in enumerate(batches):
            t.got()
            there = copied(t, x, y)
            del x, y
            given_back(t)
            out, loss = step(t, model, optimizer, *there)
            del there
            given_back(t)
            assert loss.item() >= 0
            t.waited()
            if i % 3 == 0:
                assert len(out.tolist()) == BATCH
                t.waited()
            nap(OTHER_S)
            t.lap("other")
            t.step(BATCH)


@LOOPS.add("items before backward", "on_device")
def items_before_backward(t: Truth) -> None:
    """Two batches make a step, and each loss is looked at before its backward."""
    model = Thin(t).to("cuda")
    optimizer, batches = sgd(model), wide(t, 36)
    t.start()
    for _ in t.epochs(2):
        for i, (x, y) in enumerate(batches):
            t.got()
            there = copied(t, x, y)
            del x, y
            given_back(t)
            out = model(there[0])
            t.lap("forward")
            loss = loss_of(out, there[1])
            t.lap("other")
            assert loss.detach().isfinite()
            t.waited()
            loss.backward()
            t.lap("backward")
            if i % 2:
                updated(t, optimizer)
            del there
            given_back(t)
            if i % 2:
                t.step(2 * BATCH)


@LOOPS.add("evaluation on the device", "on_device")
def evaluation_on_the_device(t: Truth) -> None:
    """An evaluation copies its batches and reads its metric: all of that is evaluation, and none of the steps'."""
    model = Thin(t).to("cuda")
    optimizer, batches, held_out = sgd(model), wide(t), wide(t, 12, "evaluation")
    t.start()
    for _ in t.epochs(2):
        learn_all(t, model, optimizer, batches, epochs=1)
        t.lap("data_wait")
        model.eval()
        t.passes += 1
        with torch.no_grad():
            for x, y in held_out:
                t.evaluated += 1
                assert loss_of(model(x.to("cuda")), y.to("cuda")).item() >= 0
        model.train()
        t.lap("evaluation")


@LOOPS.add("inference on the device", "on_device")
def inference_on_the_device(t: Truth) -> None:
    """No optimizer: each output is brought back, which waits for it."""
    model = Thin(t).eval().to("cuda")
    batches = wide(t, 36, "unknown")
    t.start()
    for x, y in batches:
        t.got()
        there, _ = copied(t, x, y)
        del x, y
        given_back(t)
        with torch.no_grad():
            out = model(there)
        t.lap("forward")
        assert out.cpu().device.type == "cpu"
        t.waited()
        nap(OTHER_S)
        del there
        t.lap("other")
        t.step(BATCH, trained=False)


@LOOPS.add("in main memory")
@LOOPS.add("in main memory beside a device", "on_device")
def in_main_memory(t: Truth) -> None:
    """Nothing is copied to a device, and no value is waited for: a conversion and `item` are what they are, `other`."""
    model = Thin(t)
    optimizer, batches = sgd(model.double()), wide(t)
    t.start()
    for x, y in batches:
        t.got()
        x = x.to(torch.float64)
        t.lap("other")
        _, loss = step(t, model, optimizer, x, y)
        assert loss.item() >= 0
        t.lap("other")
        t.step(BATCH)
        del x, y
