"""Timed loops with passes that nothing is learned from, and loops that learn nothing or without an optimizer."""

from __future__ import annotations

from typing import Any, Final

import torch

from tests.support.loop_parts import (
    FORWARD_S,
    OTHER_S,
    Timed,
    Truth,
    backed,
    begun,
    evaluate,
    learn,
    learn_all,
    loader,
    loss_of,
    nap,
    net,
    sgd,
)

LOOPS: Final = Timed()


def evaluation(t: Truth, switch_mode: bool, no_grad: bool, every: int | None) -> None:
    """An evaluation pass every k steps, or at each epoch's end: billed to `evaluation`, its batches are no samples."""
    model = net(t)
    optimizer, batches, held_out = sgd(model), loader(t, 30), loader(t, 12, "evaluation")
    t.start()
    for _ in t.epochs(2):
        for x, y in batches:
            t.got()
            learn(t, model, optimizer, x, y)
            if every is not None and t.steps % every == 0:
                evaluate(t, model, held_out, switch_mode, no_grad)
        t.lap("data_wait")
        if every is None:
            evaluate(t, model, held_out, switch_mode, no_grad)


for where, every in (("every 3 steps", 3), ("per epoch", None)):
    for mode, switch_mode in (("", True), (", training mode", False)):
        for grad, no_grad in (("", True), (", gradients", False)):
            name = f"evaluation {where}{mode}{grad}"
            LOOPS.add(name, switch_mode=switch_mode, no_grad=no_grad, every=every)(evaluation)


@LOOPS.add("evaluation before and after", no_grad=True)
@LOOPS.add("evaluation before and after, gradients", no_grad=False)
def evaluation_around(t: Truth, no_grad: bool) -> None:
    """Held-out data after the training is part of its last step; of such data before it, each batch is a step.

    It is one without an optimizer, because until there is one nothing tells such a pass from an inference loop.
    """
    model = net(t)
    optimizer, batches = sgd(model), loader(t, 30)
    held_out, tested = loader(t, 12, "unknown"), loader(t, 24, "evaluation")
    t.start()
    model.eval()
    for x, y in held_out:
        t.got()
        with torch.set_grad_enabled(not no_grad):
            out = model(x)
        t.lap("forward")
        loss_of(out, y)
        t.lap("other")
        t.step(len(x), trained=False)
    model.train()
    t.epoch += 1
    learn_all(t, model, optimizer, batches, epochs=1)
    t.lap("data_wait")
    evaluate(t, model, tested, no_grad=no_grad)


@LOOPS.add("evaluation of the training set")
def evaluation_of_the_training_set(t: Truth) -> None:
    """The training loader itself is walked without gradients after each epoch."""
    model, optimizer, batches = begun(t, 18)
    for _ in t.epochs(3):
        learn_all(t, model, optimizer, batches, epochs=1)
        t.lap("data_wait")
        evaluate(t, model, batches)
    t.passes = 0  # those over the training's own loader are not told from its epochs


@LOOPS.add("forces")
def forces(t: Truth) -> None:
    """An evaluation that needs gradients of its inputs, as for the forces of an energy: nothing is learned by it."""
    model = net(t)
    optimizer, batches, held_out = sgd(model), loader(t, 18), loader(t, 12, "evaluation")
    t.start()
    for _ in t.epochs(2):
        learn_all(t, model, optimizer, batches, epochs=1)
        t.lap("data_wait")
        model.eval()
        t.passes += 1
        for x, _y in held_out:
            t.evaluated += 1
            x.requires_grad_(True)
            torch.autograd.grad(model(x).sum(), x)
        model.train()
        t.lap("evaluation")


@LOOPS.add("statistics first")
def statistics_first(t: Truth) -> None:
    """A pass over the data before the training (mean and spread): rows of their own, none of the first step's samples.

    Its batches are steps without an optimizer, because nothing tells such a pass from an inference loop.
    """
    model, optimizer, batches = begun(t, 18)
    total = torch.zeros(())
    for x, _y in batches:
        t.got()
        total += x.sum()
        t.lap("other")
        t.step(len(x), trained=False)
    t.epoch += 1
    learn_all(t, model, optimizer, batches, epochs=1)


@LOOPS.add("frozen backbone")
def frozen_backbone(t: Truth) -> None:
    """A backbone in evaluation mode under `no_grad` is forward, not evaluation, also if the optimizer was given it."""
    backbone, head = net(t, "backbone", outputs=3), net(t, "head", inputs=3)
    backbone.requires_grad_(False).eval()
    optimizer, batches = sgd(backbone, head), loader(t, 30)
    t.start()
    for _ in t.epochs(2):
        for x, y in batches:
            t.got()
            with torch.no_grad():
                features = backbone(x)
            t.lap("forward")
            learn(t, head, optimizer, features, y)


@LOOPS.add("inference")
def inference(t: Truth) -> None:
    """No optimizer: a step per batch."""
    model = net(t).eval()
    batches = loader(t, 44, "unknown")
    t.start()
    for x, _y in batches:
        t.got()
        with torch.no_grad():
            model(x)
        t.lap("forward")
        nap(OTHER_S)
        t.lap("other")
        t.step(len(x), trained=False)


@LOOPS.add("unheard inference")
def unheard_inference(t: Truth) -> None:
    """A function instead of a model: a step per batch, whose compute is `other`."""
    weight = torch.randn(4, 2)
    batches = loader(t, 44, "unknown")
    t.start()
    for x, _y in batches:
        t.got()
        nap(FORWARD_S)
        assert (x @ weight).shape == (len(x), 2)
        t.lap("other")
        t.step(len(x), trained=False)


@LOOPS.add("functional")
def functional(t: Truth) -> None:
    """`torch.func` and an update by hand: no optimizer, so a step per batch.

    That it trains is told by whose gradients are asked for: those of all parameters of a model, or what stands in.
    """
    model = net(t)
    batches = loader(t, 44)
    weights: dict[str, torch.Tensor] = dict(model.named_parameters())
    t.start()
    for x, y in batches:
        t.got()

        def loss(of: dict[str, torch.Tensor]) -> torch.Tensor:
            t.lap("other")
            out = torch.func.functional_call(model, of, (x,))
            t.lap("forward")
            return torch.nn.functional.cross_entropy(out, y)

        value = loss(weights)
        nap(OTHER_S)
        t.lap("other")
        grads = torch.autograd.grad(value, list(weights.values()))
        t.lap("backward")
        weights = {
            name: (w - 0.1 * g).detach().requires_grad_() for (name, w), g in zip(weights.items(), grads, strict=True)
        }
        t.lap("other")
        t.step(len(x))


@LOOPS.add("own update")
def own_update(t: Truth) -> None:
    """Parameters changed by hand after a backward: a training step per batch, whose update is `other`."""
    model: Any = net(t)
    batches = loader(t, 44)
    t.start()
    for x, y in batches:
        t.got()
        backed(t, model, x, y)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None
        nap(OTHER_S)
        t.lap("other")
        t.step(len(x))
