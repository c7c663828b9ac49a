"""Real training loops of every shape that pulls from a loader, each with its own count of steps, samples and seconds.

A loop is a function of a Truth: it runs for a tenth of a second or so, laps the Truth's stopwatch by hand, and tells it
every step. `LOOPS` lists them all, with those of `loops_apart.py`. What a loop's docstring says is what is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from loop_parts import (
    BATCH,
    FORWARD_S,
    OTHER_S,
    Items,
    Net,
    Stream,
    Truth,
    evaluate,
    given_back,
    learn,
    loader,
    loss_of,
    net,
    sgd,
)
from torch.utils.data import DataLoader

Loop = Callable[[Truth], None]


def plain(t: Truth) -> None:
    """Epochs over a loader."""
    model = net(t)
    optimizer, batches = sgd(model), loader(32)
    t.start()
    for _ in range(3):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)


def shuffled_by_workers(t: Truth) -> None:
    """Two workers, started anew each epoch: their start is data wait."""
    model = net(t)
    optimizer, batches = sgd(model), loader(30, shuffle=True, num_workers=2)
    t.start()
    for _ in range(2):
        t.forks += 1
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)
            del x, y
            given_back(t)


def persistent_workers(t: Truth) -> None:
    """Two workers that stay over epochs."""
    model = net(t)
    optimizer, batches = sgd(model), loader(30, num_workers=2, persistent_workers=True)
    t.start()
    t.forks += 1
    for _ in range(3):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)
            del x, y
            given_back(t)


def accumulation(every: int) -> Loop:
    """Gradients of `every` batches make one step; those left over at an epoch's end go into the next one's first."""

    def loop(t: Truth) -> None:
        model = net(t)
        optimizer, batches = sgd(model), loader(BATCH * (2 * every))
        samples = pulled = 0
        t.start()
        for _ in range(2):
            for x, y in batches:
                t.got()
                loss = loss_of(_lapped_forward(t, model, x), y)
                t.lap("other")
                loss.backward()
                t.lap("backward")
                samples, pulled = samples + len(x), pulled + 1
                if pulled % every == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    t.lap("optimizer")
                    t.step(samples)
                    samples = 0

    loop.__doc__ = accumulation.__doc__
    return loop


def _lapped_forward(t: Truth, model: Net, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(x)
    t.lap("forward")
    return out


def summed_losses(t: Truth) -> None:
    """Three losses are summed and differentiated once: the batches before are none of an evaluation."""
    model = net(t)
    optimizer, batches = sgd(model), loader(BATCH * 6)
    t.start()
    for _ in range(2):
        losses: list[torch.Tensor] = []
        for x, y in batches:
            t.got()
            losses.append(loss_of(_lapped_forward(t, model, x), y))
            t.lap("other")
            if len(losses) == 3:
                torch.stack(losses).sum().backward()
                t.lap("backward")
                optimizer.step()
                optimizer.zero_grad()
                t.lap("optimizer")
                t.step(3 * BATCH)
                losses = []


def gan(t: Truth) -> None:
    """Two models, two losses, two optimizers: one step an iteration."""
    maker, judge = net(t, "maker", inputs=3, outputs=4), net(t, "judge")
    makes, judges, batches = sgd(maker), sgd(judge), loader(30)
    t.start()
    for _ in range(2):
        for x, _y in batches:
            t.got()
            fake = maker(torch.randn(len(x), 3))
            real_out, fake_out = judge(x), judge(fake.detach())
            t.lap("forward")
            time.sleep(OTHER_S)
            loss = (real_out - fake_out).pow(2).mean()
            t.lap("other")
            loss.backward()
            t.lap("backward")
            judges.step()
            judges.zero_grad()
            t.lap("optimizer")
            out = judge(fake)
            t.lap("forward")
            time.sleep(OTHER_S)
            loss = out.pow(2).mean()
            t.lap("other")
            loss.backward()
            t.lap("backward")
            makes.step()
            makes.zero_grad()
            t.lap("optimizer")
            t.step(len(x))


def lbfgs(t: Truth) -> None:
    """The closure runs forward, loss and backward inside the optimizer: they are told apart from its own time."""
    model = net(t)
    optimizer, batches = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3), loader(18)
    t.start()
    for _ in range(2):
        for x, y in batches:
            t.got()

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                t.lap("optimizer")
                out = model(x)
                t.lap("forward")
                loss = loss_of(out, y)
                t.lap("other")
                loss.backward()
                t.lap("backward")
                return loss

            optimizer.step(closure)
            t.lap("optimizer")
            time.sleep(OTHER_S)
            t.lap("other")
            t.step(len(x))


def evaluation(switch_mode: bool, no_grad: bool, every: int | None) -> Loop:
    """An evaluation pass every k steps, or at each epoch's end: billed to `evaluation`, its batches are no samples."""

    def loop(t: Truth) -> None:
        model = net(t)
        optimizer, batches, held_out = sgd(model), loader(30), loader(12)
        t.start()
        for _ in range(2):
            for x, y in batches:
                t.got()
                learn(t, model, optimizer, x, y)
                if every is not None and t.steps % every == 0:
                    evaluate(t, model, held_out, switch_mode, no_grad)
            t.lap("data_wait")
            if every is None:
                evaluate(t, model, held_out, switch_mode, no_grad)

    loop.__doc__ = evaluation.__doc__
    return loop


def evaluation_of_the_training_set(t: Truth) -> None:
    """The training loader itself is walked without gradients after each epoch."""
    model = net(t)
    optimizer, batches = sgd(model), loader(18)
    t.start()
    for _ in range(3):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)
        evaluate(t, model, batches)
    t.passes = 0  # those over the training's own loader are not told from its epochs


def forces(t: Truth) -> None:
    """An evaluation that needs gradients of its inputs, as for the forces of an energy: nothing is learned by it."""
    model = net(t)
    optimizer, batches, held_out = sgd(model), loader(18), loader(12)
    t.start()
    for _ in range(2):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)
        model.eval()
        t.passes += 1
        for x, _y in held_out:
            t.evaluated += 1
            x.requires_grad_(True)
            torch.autograd.grad(model(x).sum(), x)
        model.train()
        t.lap("evaluation")


def statistics_first(t: Truth) -> None:
    """A pass over the data before the training (mean and spread): rows of their own, none of the first step's samples.

    Its batches are steps without an optimizer, because nothing tells such a pass from an inference loop.
    """
    model = net(t)
    optimizer, batches = sgd(model), loader(18)
    t.start()
    total = torch.zeros(())
    for x, _y in batches:
        t.got()
        total += x.sum()
        t.lap("other")
        t.step(len(x))
    for x, y in batches:
        t.got()
        learn(t, model, optimizer, x, y)


def zipped(t: Truth) -> None:
    """Two loaders in step: the samples are those of the first."""
    model = net(t)
    optimizer, first, second = sgd(model), loader(30), loader(20, batch_size=4)
    t.start()
    for _ in range(2):
        for (x, y), (other, _) in zip(first, second, strict=False):
            t.got(2)
            learn(t, model, optimizer, x, y)
            assert len(other) <= 4


def nested(t: Truth) -> None:
    """A loader inside a loader's loop: the samples are those of the one that delivers most."""
    model = net(t)
    optimizer, outer, inner = sgd(model), loader(12), loader(12)
    t.start()
    for _outer in outer:
        t.got()
        for x, y in inner:
            t.got()
            learn(t, model, optimizer, x, y)
        t.lap("data_wait")


def restarted(t: Truth) -> None:
    """`next(it)` with a restart where the loader ends."""
    model = net(t)
    optimizer, batches = sgd(model), loader(20)
    t.start()
    it = iter(batches)
    for _ in range(10):
        try:
            x, y = next(it)
        except StopIteration:
            it = iter(batches)
            x, y = next(it)
        t.got()
        learn(t, model, optimizer, x, y)


def while_true(t: Truth) -> None:
    """`while True`, left by a break in the middle of an epoch, and begun again."""
    model = net(t)
    optimizer, batches = sgd(model), loader(36)
    t.start()
    while True:
        for i, (x, y) in enumerate(batches):
            t.got()
            learn(t, model, optimizer, x, y)
            if i == 3:
                break
        if t.steps >= 8:
            break


class Trainer:
    """A loop in a class, over a generator of batches that it makes itself."""

    def __init__(self, t: Truth) -> None:
        self.t, self.model = t, net(t)
        self.optimizer, self.batches = sgd(self.model), loader(30)

    def stream(self) -> Iterator[Any]:
        """Epoch after epoch."""
        for _ in range(2):
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


def new_loader_each_epoch(t: Truth) -> None:
    """The loader is built anew in every epoch: one loader in the setup."""
    model = net(t)
    optimizer = sgd(model)
    t.start()
    for _ in range(3):
        batches = DataLoader(Items(18), batch_size=BATCH)
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)


class Bag:
    """A batch as an object that some library made."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.name, self.x, self.y = "bag", x, y


@dataclass
class Pair:
    """A batch as a dataclass."""

    x: torch.Tensor
    y: torch.Tensor


def held_in(box: Callable[[torch.Tensor, torch.Tensor], Any], stream: bool) -> Loop:
    """Batches in dicts, tuples, dataclasses and objects, with and without a sampler that could count them."""

    def collate(items: list[Any]) -> Any:
        return box(torch.stack([x for x, _ in items]), torch.stack([y for _, y in items]))

    def loop(t: Truth) -> None:
        model = net(t)
        data: Any = Stream(20) if stream else Items(20)
        optimizer, batches = sgd(model), DataLoader(data, batch_size=BATCH, collate_fn=collate)
        t.start()
        for _ in range(2):
            for batch in batches:
                values = batch if isinstance(batch, (dict, tuple)) else vars(batch)
                x, y = (values["x"], values["y"]) if isinstance(values, dict) else values
                t.got()
                learn(t, model, optimizer, x, y)

    loop.__doc__ = held_in.__doc__
    return loop


def one_ahead(t: Truth) -> None:
    """A prefetcher that pulls a batch ahead of the one that it hands out: each is still counted once."""
    model = net(t)
    optimizer, batches = sgd(model), loader(32)

    def ahead() -> Iterator[Any]:
        it = iter(batches)
        now = next(it)
        for later in it:
            yield now
            now = later
        yield now

    t.start()
    for _ in range(2):
        for x, y in ahead():
            t.got()
            learn(t, model, optimizer, x, y)


def several_models(t: Truth) -> None:
    """An encoder and a decoder under one optimizer."""
    encoder, decoder = net(t, "encoder", outputs=3), net(t, "decoder", inputs=3)
    optimizer, batches = sgd(encoder, decoder), loader(30)
    t.start()
    for _ in range(2):
        for x, y in batches:
            t.got()
            learn(t, torch.nn.Sequential(encoder, decoder), optimizer, x, y)


def frozen_backbone(t: Truth) -> None:
    """A backbone in evaluation mode under `no_grad` is forward, not evaluation, also if the optimizer was given it."""
    backbone, head = net(t, "backbone", outputs=3), net(t, "head", inputs=3)
    backbone.requires_grad_(False).eval()
    optimizer, batches = sgd(backbone, head), loader(30)
    t.start()
    for _ in range(2):
        for x, y in batches:
            t.got()
            with torch.no_grad():
                features = backbone(x)
            t.lap("forward")
            learn(t, head, optimizer, features, y)


def inference(t: Truth) -> None:
    """No optimizer: a step per batch."""
    model = net(t).eval()
    batches = loader(44)
    t.start()
    for x, _y in batches:
        t.got()
        with torch.no_grad():
            model(x)
        t.lap("forward")
        time.sleep(OTHER_S)
        t.lap("other")
        t.step(len(x))


def unheard_inference(t: Truth) -> None:
    """A function instead of a model: a step per batch, whose compute is `other`."""
    weight = torch.randn(4, 2)
    batches = loader(44)
    t.start()
    for x, _y in batches:
        t.got()
        time.sleep(FORWARD_S)
        assert (x @ weight).shape == (len(x), 2)
        t.lap("other")
        t.step(len(x))
