"""Timed loops: real training loops of every shape, each with its own count of steps, samples and seconds.

A loop is a function of a `Truth`: it runs for a tenth of a second or so, laps the Truth's stopwatch by hand, and counts
every step in it. What a loop's docstring says is what is recorded. `LOOPS` holds them all by name, with what each has;
`played` runs one under every tap.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.recording import Recording
from tests.support import loops_evaluated, loops_on_device
from tests.support.loop_parts import (
    BATCH,
    OTHER_S,
    Items,
    Net,
    Stream,
    Timed,
    Truth,
    backed,
    begun,
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
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import SimulatedDevice

LOOPS = Timed()


@LOOPS.add("plain")
def plain(t: Truth) -> None:
    """Epochs over a loader."""
    model, optimizer, batches = begun(t, 32)
    learn_all(t, model, optimizer, batches, epochs=3)


@LOOPS.add("shuffled by workers", epochs=2, shuffle=True)
@LOOPS.add("persistent workers", epochs=3, persistent_workers=True)
def of_workers(t: Truth, epochs: int, **options: Any) -> None:
    """Two workers: started anew each epoch, where their start is data wait, or staying over epochs."""
    model, optimizer, batches = begun(t, 30, num_workers=2, **options)
    for _ in t.epochs(epochs):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)
            del x, y
            given_back(t)


@LOOPS.add("accumulation of 2", every=2)
@LOOPS.add("accumulation of 4", every=4)
@LOOPS.add("accumulation of 8", every=8)
@LOOPS.add("accumulation of 4 over epochs", every=4, each_epoch=6)
def accumulation(t: Truth, every: int, each_epoch: int | None = None) -> None:
    """Gradients of `every` batches make one step; those left over at an epoch's end go into the next one's first.

    Args:
        each_epoch: batches of an epoch, those of two steps if not given.
    """
    model, optimizer, batches = begun(t, BATCH * (each_epoch or 2 * every))
    samples = pulled = 0
    for _ in t.epochs(2):
        for x, y in batches:
            t.got()
            backed(t, model, x, y)
            samples, pulled = samples + len(x), pulled + 1
            if pulled % every == 0:
                updated(t, optimizer)
                t.step(samples)
                samples = 0


@LOOPS.add("summed losses")
def summed_losses(t: Truth) -> None:
    """Three losses are summed and differentiated once: the batches before are none of an evaluation."""
    model, optimizer, batches = begun(t, BATCH * 6)
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


@LOOPS.add("gan")
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


@LOOPS.add("lbfgs")
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


@LOOPS.add("zipped")
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


@LOOPS.add("nested")
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


@LOOPS.add("restarted")
def restarted(t: Truth) -> None:
    """`next(it)` with a restart where the loader ends."""
    model, optimizer, batches = begun(t, 20)
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


@LOOPS.add("while true")
def while_true(t: Truth) -> None:
    """`while True`, left by a break in the middle of an epoch, and begun again."""
    model, optimizer, batches = begun(t, 36)
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
        """Yields epoch after epoch."""
        for _ in self.t.epochs(2):
            yield from self.batches

    def fit(self) -> None:
        """Trains on the stream."""
        self.t.start()
        for x, y in self.stream():
            self.t.got()
            learn(self.t, self.model, self.optimizer, x, y)


@LOOPS.add("trainer")
def trainer(t: Truth) -> None:
    """A loop in a class, fed by a generator."""
    Trainer(t).fit()


@LOOPS.add("several models")
def several_models(t: Truth) -> None:
    """An encoder and a decoder under one optimizer."""
    encoder, decoder = net(t, "encoder", outputs=3), net(t, "decoder", inputs=3)
    optimizer, batches = sgd(encoder, decoder), loader(t, 30)
    t.start()
    learn_all(t, torch.nn.Sequential(encoder, decoder), optimizer, batches)


X, Y = torch.rand(64, 4), torch.randint(0, 2, (64,))


def get_batch(t: Truth, phase: str = "other") -> tuple[torch.Tensor, torch.Tensor]:
    """A batch drawn from arrays."""
    nap(OTHER_S)
    rows = torch.randint(0, len(X), (BATCH,))
    x, y = X[rows], Y[rows]
    t.lap(phase)
    return x, y


@LOOPS.add("arrays", steps=14)
@LOOPS.add("arrays accumulated", steps=8, parts=3)
@LOOPS.add("arrays with evaluation", steps=14, evaluates=True)
def arrays(t: Truth, steps: int, parts: int = 1, evaluates: bool = False) -> None:
    """No loader: a step ends at its optimizer step; drawing the batch is `other`, samples are those of the forward.

    The first batch is drawn before the loop's first event, which is its first forward, and is no part of it. The
    evaluation, in the manner of nanoGPT's `estimate_loss`, lasts from its first forward to the training's next event:
    what is drawn before that forward is `other`, as much as is drawn for the training before that event.

    Args:
        parts: batches whose gradients make a step; its samples are those of all of them.
        evaluates: True for an evaluation every 4 steps.
    """
    model = net(t)
    optimizer = sgd(model)
    optimizer.zero_grad()
    x, y = get_batch(Truth())
    t.start()
    for i in range(steps):
        for part in range(parts):
            if i or part:
                x, y = get_batch(t)
            if parts > 1:
                backed(t, model, x, y)
        if parts == 1:
            learn(t, model, optimizer, x, y)
        else:
            updated(t, optimizer)
            t.step(parts * BATCH)
        if evaluates and i % 4 == 3:
            model.eval()
            with torch.no_grad():
                for _ in range(3):
                    loss_of(model(get_batch(t, "evaluation")[0]), y)
            model.train()
            t.lap("evaluation")


@LOOPS.add("async generator")
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


@LOOPS.add("one batch")
def one_batch(t: Truth) -> None:
    """One batch, pulled once and trained on again and again: every optimizer step is a step on its samples."""
    model, optimizer, batches = begun(t, 12)
    x, y = next(iter(batches))
    t.got()
    for _ in range(12):
        learn(t, model, optimizer, x, y)


@LOOPS.add("gan on one batch")
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


@LOOPS.add("in a thread")
def in_a_thread(t: Truth) -> None:
    """The training runs in a thread that is not the main one."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            plain(t)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="training")
    thread.start()
    thread.join()
    assert not failed, failed


@LOOPS.add("read by a thread", "read_by_thread")
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


@LOOPS.add("in a function")
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


@LOOPS.add("wrapped optimizer")
def wrapped_optimizer(t: Truth) -> None:
    """The optimizer is called through an object of another type."""
    model = net(t)
    optimizer: Any = Wrapped(sgd(model))
    batches = loader(t, 30)
    t.start()
    learn_all(t, model, optimizer, batches, epochs=1)


@LOOPS.add("torch.compile", by_method=False)
@LOOPS.add("module.compile", by_method=True)
def compiled(t: Truth, by_method: bool) -> None:
    """A compiled model, by `torch.compile` and by `module.compile`; the first call's compilation is forward."""
    plain = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    model: Any = plain if by_method else torch.compile(plain, backend="eager")
    if by_method:
        plain.compile(backend="eager")
    t.namespace["model"] = model
    optimizer, batches = sgd(plain), loader(t, 30)
    t.start()
    learn_all(t, model, optimizer, batches, epochs=1)


@LOOPS.add("new loader each epoch")
def new_loader_each_epoch(t: Truth) -> None:
    """The loader is built anew in every epoch: one loader in the setup."""
    model = net(t)
    optimizer = sgd(model)
    data = t.loads("training", Items(18))
    t.start()
    for _ in t.epochs(3):
        learn_all(t, model, optimizer, DataLoader(data, batch_size=BATCH), epochs=1)


class Bag:
    """A batch as an object that some library made."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.name, self.x, self.y = "bag", x, y


@dataclass
class Pair:
    """A batch as a dataclass."""

    x: torch.Tensor
    y: torch.Tensor


BOXES: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], Any]]] = {
    "dict": lambda x, y: {"x": x, "y": y},
    "tuple": lambda x, y: (x, y),
    "dataclass": Pair,
    "object": Bag,
}


def held_in(t: Truth, box: str, stream: bool) -> None:
    """Batches in dicts, tuples, dataclasses and objects, with and without a sampler that could count them."""

    def collate(items: list[Any]) -> Any:
        return BOXES[box](torch.stack([x for x, _ in items]), torch.stack([y for _, y in items]))

    model = net(t)
    data = t.loads("training", Stream(20) if stream else Items(20))
    optimizer, batches = sgd(model), DataLoader(data, batch_size=BATCH, collate_fn=collate)
    t.start()
    for _ in t.epochs(2):
        for batch in batches:
            values = batch if isinstance(batch, (dict, tuple)) else vars(batch)
            x, y = (values["x"], values["y"]) if isinstance(values, dict) else values
            t.got()
            learn(t, model, optimizer, x, y)


for box in BOXES:
    LOOPS.add(f"{box} batches", box=box, stream=False)(held_in)
    LOOPS.add(f"stream of {box} batches", box=box, stream=True)(held_in)


@LOOPS.add("one ahead", "pulls_ahead")
def one_ahead(t: Truth) -> None:
    """A prefetcher that pulls a batch ahead of the one that it hands out: each is still counted once."""
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 32)

    def ahead() -> Iterator[Any]:
        it = iter(batches)
        now = next(it)
        for later in it:
            yield now
            now = later
        yield now

    t.start()
    for _ in t.epochs(2):
        learn_all(t, model, optimizer, ahead(), epochs=1)


def played(name: str) -> tuple[Truth, Recording]:
    """Plays a loop with every tap on: its own count, and what was recorded. Those on a GPU run in virtual time."""
    if not LOOPS[name].on_device:
        return _played(name, Recorder(name=name))
    with SimulatedCuda(SimulatedDevice(exact=True), kernel_ms=0.01, launch_ms=0.005) as cuda:
        return _played(name, cuda.device.recorder(name=name))


def _played(name: str, recorder: Recorder) -> tuple[Truth, Recording]:
    truth, loop = Truth(), LOOPS[name]
    with listening(recorder, truth.namespace, accelerated=loop.on_device):
        loop.run(truth)
    truth.end()
    return truth, recorder.close()


LOOPS.update(loops_evaluated.LOOPS | loops_on_device.LOOPS)
