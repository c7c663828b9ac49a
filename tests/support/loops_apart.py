"""Training loops that pull from no loader, or do without a main thread, a plain optimizer or a plain model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import torch

from tests.support import loops
from tests.support.loop_parts import (
    BATCH,
    OTHER_S,
    Net,
    Truth,
    backed,
    learn,
    learn_all,
    loader,
    loss_of,
    nap,
    net,
    sgd,
    updated,
)
from tests.support.loops import Loop

X, Y = torch.rand(64, 4), torch.randint(0, 2, (64,))


def get_batch(t: Truth, phase: str = "other") -> tuple[torch.Tensor, torch.Tensor]:
    """A batch drawn from arrays."""
    nap(OTHER_S)
    rows = torch.randint(0, len(X), (BATCH,))
    x, y = X[rows], Y[rows]
    t.lap(phase)
    return x, y


def arrays(t: Truth) -> None:
    """No loader: a step ends at its optimizer step; drawing the batch is `other`, samples are those of the forward.

    The first batch is drawn before the loop's first event, which is its first forward, and is no part of it.
    """
    model = net(t)
    optimizer = sgd(model)
    optimizer.zero_grad()
    x, y = get_batch(Truth())
    t.start()
    for i in range(14):
        if i:
            x, y = get_batch(t)
        learn(t, model, optimizer, x, y)


def arrays_accumulated(t: Truth) -> None:
    """Gradients of three drawn batches make a step: its samples are those of all three."""
    model = net(t)
    optimizer = sgd(model)
    optimizer.zero_grad()
    x, y = get_batch(Truth())
    t.start()
    for i in range(8):
        for part in range(3):
            if i or part:
                x, y = get_batch(t)
            backed(t, model, x, y)
        updated(t, optimizer)
        t.step(3 * BATCH)


def arrays_with_evaluation(t: Truth) -> None:
    """The same with an `estimate_loss` every 4 steps, in the manner of nanoGPT.

    The evaluation lasts from its first forward to the training's next event. So what is drawn before that forward is
    `other`, as much as is drawn for the training before that event.
    """
    model = net(t)
    optimizer = sgd(model)

    @torch.no_grad()
    def estimate_loss() -> None:
        model.eval()
        for _ in range(3):
            x, y = get_batch(t, "evaluation")
            loss_of(model(x), y)
        model.train()
        t.lap("evaluation")

    optimizer.zero_grad()
    x, y = get_batch(Truth())
    t.start()
    for i in range(14):
        if i:
            x, y = get_batch(t)
        learn(t, model, optimizer, x, y)
        if i % 4 == 3:
            estimate_loss()


def async_generator(t: Truth) -> None:
    """Batches of an `async for`, in an event loop of the cell's own: awaiting one is `other`, as drawing it is."""

    async def given() -> AsyncIterator[tuple[torch.Tensor, torch.Tensor]]:
        for i in range(14):
            await asyncio.sleep(0)
            yield get_batch(t) if i else get_batch(Truth())

    async def train() -> None:
        model = net(t)
        optimizer, batches = sgd(model), given()
        optimizer.zero_grad()
        x, y = await anext(batches)
        t.start()
        learn(t, model, optimizer, x, y)
        async for x, y in batches:
            learn(t, model, optimizer, x, y)

    asyncio.run(train())


def one_batch(t: Truth) -> None:
    """One batch, pulled once and trained on again and again: every optimizer step is a step on its samples."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 12)
    t.start()
    x, y = next(iter(batches))
    t.got()
    for _ in range(12):
        learn(t, model, optimizer, x, y)


def gan_on_one_batch(t: Truth) -> None:
    """The same with two optimizers: the step begins anew where the first of them steps again."""
    maker, judge = net(t, "maker", inputs=3, outputs=4), net(t, "judge")
    makes, judges, batches = sgd(maker), sgd(judge), loader(t, 12)
    t.start()
    x, y = next(iter(batches))
    t.got()
    for _ in range(8):
        for optimizer, out in ((judges, judge), (makes, torch.nn.Sequential(maker, judge))):
            backed(t, out, x if optimizer is judges else torch.randn(BATCH, 3), y)
            updated(t, optimizer)
        t.step(BATCH)


def in_a_thread(t: Truth) -> None:
    """The training runs in a thread that is not the main one."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            loops.plain(t)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="training")
    thread.start()
    thread.join()
    assert not failed, failed


def read_by_a_thread(t: Truth) -> None:
    """A background thread pulls and the main thread trains: waiting for its queue is `other`, not data wait.

    What another thread does is not accounted, so nothing tells what its loader is for; the steps end at the
    optimizer's, with the samples of the forward.
    (A thread that reads a whole loader before anybody trains is a pass over the data, with rows of its own.)
    """
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 60, "unknown")
    lane: list[Any] = []
    trained = threading.Event()

    def read() -> None:
        for batch in batches:
            lane.append(batch)
            if len(lane) > 2:
                trained.wait(10)

    thread = threading.Thread(target=read, name="reader")
    thread.start()
    time.sleep(0.01)
    begun = False
    for i in range(10):
        while len(lane) <= i:
            time.sleep(0.0002)
        if begun:
            t.lap("other")
        else:
            t.start()
            begun = True
        learn(t, model, optimizer, *lane[i])
        trained.set()
    thread.join()


def in_a_function(t: Truth) -> None:
    """The model is local to a function: it is found when its optimizer is first used."""

    def main() -> None:
        model = Net()
        optimizer, batches = sgd(model), loader(t, 30)
        t.start()
        learn_all(t, model, optimizer, batches)

    main()


class Wrapped:
    """An optimizer in somebody's wrapper."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def zero_grad(self) -> None:
        """Passes on."""
        self.inner.zero_grad()

    def step(self) -> None:
        """Passes on."""
        self.inner.step()


def wrapped_optimizer(t: Truth) -> None:
    """The optimizer is called through an object of another type."""
    model = net(t)
    optimizer: Any = Wrapped(sgd(model))
    batches = loader(t, 30)
    t.start()
    learn_all(t, model, optimizer, batches, epochs=1)


def compiled(how: str) -> Loop:
    """A compiled model, by `torch.compile` and by `module.compile`; the first call's compilation is forward."""

    def loop(t: Truth) -> None:
        plain = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
        model: Any = torch.compile(plain, backend="eager") if how == "function" else plain
        if how == "method":
            plain.compile(backend="eager")
        t.namespace["model"] = model
        optimizer, batches = sgd(plain), loader(t, 30)
        t.start()
        learn_all(t, model, optimizer, batches, epochs=1)

    loop.__doc__ = compiled.__doc__
    return loop
