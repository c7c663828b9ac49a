"""Training loops that pull from no loader, or do without an optimizer, a main thread or a plain model; and the list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import loops
import torch
from loop_parts import BATCH, OTHER_S, Net, Truth, learn, loader, loss_of, net, sgd
from loops import Bag, Loop, Pair

X, Y = torch.rand(64, 4), torch.randint(0, 2, (64,))


def get_batch(t: Truth, phase: str = "other") -> tuple[torch.Tensor, torch.Tensor]:
    """A batch drawn from arrays."""
    time.sleep(OTHER_S)
    rows = torch.randint(0, len(X), (BATCH,))
    t.lap(phase)
    return X[rows], Y[rows]


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
            out = model(x)
            t.lap("forward")
            loss = loss_of(out, y)
            t.lap("other")
            loss.backward()
            t.lap("backward")
        optimizer.step()
        optimizer.zero_grad()
        t.lap("optimizer")
        t.step(3 * BATCH)


def arrays_with_evaluation(t: Truth) -> None:
    """The same with an `estimate_loss` every 4 steps, in the manner of nanoGPT.

    What is drawn before its first forward cannot be told from the training's, what is drawn for the training right
    after it cannot be told from the evaluation's: one batch each, so that the sums come out even.
    """
    model = net(t)
    optimizer = sgd(model)

    @torch.no_grad()
    def estimate_loss() -> None:
        model.eval()
        for _ in range(3):
            x, y = get_batch(t, "evaluation")
            loss_of(model(x), y)
            t.lap("evaluation")
        model.train()

    optimizer.zero_grad()
    x, y = get_batch(Truth())
    t.start()
    for i in range(14):
        if i:
            x, y = get_batch(t)
        learn(t, model, optimizer, x, y)
        if i % 4 == 3:
            estimate_loss()


def one_batch(t: Truth) -> None:
    """One batch, pulled once and trained on again and again: every optimizer step is a step on its samples."""
    model = net(t)
    optimizer, batches = sgd(model), loader(12)
    t.start()
    x, y = next(iter(batches))
    t.got()
    for _ in range(12):
        learn(t, model, optimizer, x, y)


def gan_on_one_batch(t: Truth) -> None:
    """The same with two optimizers: the step begins anew where the first of them steps again."""
    maker, judge = net(t, "maker", inputs=3, outputs=4), net(t, "judge")
    makes, judges, batches = sgd(maker), sgd(judge), loader(12)
    t.start()
    x, y = next(iter(batches))
    t.got()
    for _ in range(8):
        for optimizer, out in ((judges, judge), (makes, torch.nn.Sequential(maker, judge))):
            made = out(x if optimizer is judges else torch.randn(BATCH, 3))
            t.lap("forward")
            loss = loss_of(made, y)
            t.lap("other")
            loss.backward()
            t.lap("backward")
            optimizer.step()
            optimizer.zero_grad()
            t.lap("optimizer")
        t.step(BATCH)


def functional(t: Truth) -> None:
    """`torch.func` and an update by hand: no optimizer, so a step per batch."""
    model = net(t)
    batches = loader(44)
    weights = dict(model.named_parameters())
    t.start()
    for x, y in batches:
        t.got()

        def loss(of: dict[str, torch.Tensor]) -> torch.Tensor:
            t.lap("other")
            out = torch.func.functional_call(model, of, (x,))
            t.lap("forward")
            t.laps["forward"] += 1  # torch puts the weights in before the forward, and the model's own back behind it
            return torch.nn.functional.cross_entropy(out, y)

        value = loss(weights)
        time.sleep(OTHER_S)
        t.lap("other")
        grads = torch.autograd.grad(value, list(weights.values()))
        t.lap("backward")
        weights = {
            name: (w - 0.1 * g).detach().requires_grad_() for (name, w), g in zip(weights.items(), grads, strict=True)
        }
        t.lap("other")
        t.step(len(x))


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

    What another thread does is not accounted; the steps end at the optimizer's, with the samples of the forward.
    (A thread that reads a whole loader before anybody trains is a pass over the data, with rows of its own.)
    """
    model = net(t)
    optimizer, batches = sgd(model), loader(60)
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
        optimizer, batches = sgd(model), loader(30)
        t.start()
        for _ in range(2):
            for x, y in batches:
                t.got()
                learn(t, model, optimizer, x, y)

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
    batches = loader(30)
    t.start()
    for x, y in batches:
        t.got()
        learn(t, model, optimizer, x, y)


def compiled(how: str) -> Loop:
    """A compiled model, by `torch.compile` and by `module.compile`; the first call's compilation is forward."""

    def loop(t: Truth) -> None:
        plain = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
        model: Any = torch.compile(plain, backend="eager") if how == "function" else plain
        if how == "method":
            plain.compile(backend="eager")
        t.namespace["model"] = model
        optimizer, batches = sgd(plain), loader(30)
        t.start()
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)

    loop.__doc__ = compiled.__doc__
    return loop


BOXES: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], Any]]] = {
    "dict": lambda x, y: {"x": x, "y": y},
    "tuple": lambda x, y: (x, y),
    "dataclass": Pair,
    "object": Bag,
}

LOOPS: Final[dict[str, Loop]] = {
    "plain": loops.plain,
    "shuffled by workers": loops.shuffled_by_workers,
    "persistent workers": loops.persistent_workers,
    **{f"accumulation of {n}": loops.accumulation(n) for n in (2, 4, 8)},
    "summed losses": loops.summed_losses,
    "gan": loops.gan,
    "lbfgs": loops.lbfgs,
    **{
        f"evaluation {where}{'' if mode else ', training mode'}{'' if no_grad else ', gradients'}": loops.evaluation(
            mode, no_grad, every
        )
        for where, every in (("every 3 steps", 3), ("per epoch", None))
        for mode in (True, False)
        for no_grad in (True, False)
    },
    "evaluation of the training set": loops.evaluation_of_the_training_set,
    "forces": loops.forces,
    "statistics first": loops.statistics_first,
    "zipped": loops.zipped,
    "nested": loops.nested,
    "restarted": loops.restarted,
    "while true": loops.while_true,
    "trainer": loops.trainer,
    "new loader each epoch": loops.new_loader_each_epoch,
    **{f"{name} batches": loops.held_in(box, stream=False) for name, box in BOXES.items()},
    **{f"stream of {name} batches": loops.held_in(box, stream=True) for name, box in BOXES.items()},
    "one ahead": loops.one_ahead,
    "several models": loops.several_models,
    "frozen backbone": loops.frozen_backbone,
    "inference": loops.inference,
    "unheard inference": loops.unheard_inference,
    "arrays": arrays,
    "arrays accumulated": arrays_accumulated,
    "arrays with evaluation": arrays_with_evaluation,
    "one batch": one_batch,
    "gan on one batch": gan_on_one_batch,
    "functional": functional,
    "in a thread": in_a_thread,
    "read by a thread": read_by_a_thread,
    "in a function": in_a_function,
    "wrapped optimizer": wrapped_optimizer,
    "torch.compile": compiled("function"),
    "module.compile": compiled("method"),
}
