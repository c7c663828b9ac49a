"""Real training loops of every shape that pulls from a loader, each with its own count of steps, samples and seconds.

A loop is a function of a Truth: it runs for a tenth of a second or so, laps the Truth's stopwatch by hand, and tells it
every step. `loop_catalogue.py` lists them all. What a loop's docstring says is what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.support.loop_parts import (
    BATCH,
    OTHER_S,
    Truth,
    backed,
    given_back,
    learn,
    learn_all,
    loader,
    loss_of,
    nap,
    net,
    sgd,
    updated,
)

Loop = Callable[[Truth], None]


def plain(t: Truth) -> None:
    """Epochs over a loader."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 32)
    t.start()
    learn_all(t, model, optimizer, batches, epochs=3)


def of_workers(epochs: int, **options: Any) -> Loop:
    """Two workers: started anew each epoch, where their start is data wait, or staying over epochs."""

    def loop(t: Truth) -> None:
        model = net(t)
        optimizer, batches = sgd(model), loader(t, 30, num_workers=2, **options)
        t.start()
        for _ in t.epochs(epochs):
            for x, y in batches:
                t.got()
                learn(t, model, optimizer, x, y)
                del x, y
                given_back(t)

    loop.__doc__ = of_workers.__doc__
    return loop


def accumulation(every: int, each_epoch: int | None = None) -> Loop:
    """Gradients of `every` batches make one step; those left over at an epoch's end go into the next one's first.

    Args:
        each_epoch: batches of an epoch, those of two steps if not given.
    """

    def loop(t: Truth) -> None:
        model = net(t)
        optimizer, batches = sgd(model), loader(t, BATCH * (each_epoch or 2 * every))
        samples = pulled = 0
        t.start()
        for _ in t.epochs(2):
            for x, y in batches:
                t.got()
                backed(t, model, x, y)
                samples, pulled = samples + len(x), pulled + 1
                if pulled % every == 0:
                    updated(t, optimizer)
                    t.step(samples)
                    samples = 0

    loop.__doc__ = accumulation.__doc__
    return loop


def summed_losses(t: Truth) -> None:
    """Three losses are summed and differentiated once: the batches before are none of an evaluation."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, BATCH * 6)
    t.start()
    for _ in t.epochs(2):
        losses: list[torch.Tensor] = []
        for x, y in batches:
            t.got()
            out = model(x)
            t.lap("forward")
            losses.append(loss_of(out, y))
            t.lap("other")
            if len(losses) == 3:
                torch.stack(losses).sum().backward()
                t.lap("backward")
                updated(t, optimizer)
                t.step(3 * BATCH)
                losses = []


def gan(t: Truth) -> None:
    """Two models, two losses, two optimizers: one step an iteration."""
    maker, judge = net(t, "maker", inputs=3, outputs=4), net(t, "judge")
    makes, judges, batches = sgd(maker), sgd(judge), loader(t, 30)
    t.start()
    for _ in t.epochs(2):
        for x, _y in batches:
            t.got()
            fake = maker(torch.randn(len(x), 3))
            real_out, fake_out = judge(x), judge(fake.detach())
            t.lap("forward")
            nap(OTHER_S)
            loss = (real_out - fake_out).pow(2).mean()
            t.lap("other")
            loss.backward()
            t.lap("backward")
            updated(t, judges)
            out = judge(fake)
            t.lap("forward")
            nap(OTHER_S)
            loss = out.pow(2).mean()
            t.lap("other")
            loss.backward()
            t.lap("backward")
            updated(t, makes)
            t.step(len(x))


def lbfgs(t: Truth) -> None:
    """The closure runs forward, loss and backward inside the optimizer: they are told apart from its own time."""
    model = net(t)
    optimizer, batches = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3), loader(t, 18)
    t.start()
    for _ in t.epochs(2):
        for x, y in batches:
            t.got()

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                t.lap("optimizer")
                return backed(t, model, x, y)[1]

            optimizer.step(closure)
            t.lap("optimizer")
            nap(OTHER_S)
            t.lap("other")
            t.step(len(x))


def zipped(t: Truth) -> None:
    """Two loaders in step: the samples are those of the first."""
    model = net(t)
    optimizer, first, second = sgd(model), loader(t, 30), loader(t, 20, batch_size=4)
    t.start()
    for _ in t.epochs(2):
        for (x, y), (other, _) in zip(first, second, strict=False):
            t.got(2)
            learn(t, model, optimizer, x, y)
            assert len(other) <= 4


def nested(t: Truth) -> None:
    """A loader inside a loader's loop: samples and epochs are those of the one that delivers most."""
    model = net(t)
    optimizer, outer, inner = sgd(model), loader(t, 12), loader(t, 12)
    t.start()
    for _outer, _ in zip(outer, t.epochs(2), strict=False):
        t.got()
        for x, y in inner:
            t.got()
            learn(t, model, optimizer, x, y)
        t.lap("data_wait")


def restarted(t: Truth) -> None:
    """`next(it)` with a restart where the loader ends."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 20)
    t.start()
    it = iter(batches)
    for _ in range(10):
        try:
            x, y = next(it)
        except StopIteration:
            t.epoch += 1
            it = iter(batches)
            x, y = next(it)
        t.got()
        learn(t, model, optimizer, x, y)


def while_true(t: Truth) -> None:
    """`while True`, left by a break in the middle of an epoch, and begun again."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 36)
    t.start()
    while True:
        for i, (x, y) in enumerate(batches):
            t.got()
            learn(t, model, optimizer, x, y)
            if i == 3:
                break
        if t.steps >= 8:
            break
        t.epoch += 1


class Trainer:
    """A loop in a class, over a generator of batches that it makes itself."""

    def __init__(self, t: Truth) -> None:
        self.t, self.model = t, net(t)
        self.optimizer, self.batches = sgd(self.model), loader(t, 30)

    def stream(self) -> Iterator[Any]:
        """Epoch after epoch."""
        for _ in self.t.epochs(2):
            yield from self.batches

    def fit(self) -> None:
        """The loop."""
        self.t.start()
        for x, y in self.stream():
            self.t.got()
            learn(self.t, self.model, self.optimizer, x, y)


def trainer(t: Truth) -> None:
    """A loop in a class, fed by a generator."""
    Trainer(t).fit()


def several_models(t: Truth) -> None:
    """An encoder and a decoder under one optimizer."""
    encoder, decoder = net(t, "encoder", outputs=3), net(t, "decoder", inputs=3)
    optimizer, batches = sgd(encoder, decoder), loader(t, 30)
    t.start()
    learn_all(t, torch.nn.Sequential(encoder, decoder), optimizer, batches)
