"""skorch's net, as its manual shows it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.support.programs import HELD_OUT, Collate, Items, Net, Plan, Slow

skorch = importlib.import_module("skorch")


class Timer(skorch.callbacks.Callback):  # type: ignore[name-defined, misc]
    """Times validation by hand: it begins when an epoch has seen all its training batches."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.left = plan, 0
        self.open = plan.hand.evaluation()

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """All batches are to come."""
        self.left = -(-self.plan.samples // self.plan.batch)

    def on_batch_end(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        """One less."""
        self.left -= training
        if training and not self.left:
            self.open = self.plan.hand.evaluation()
            self.open.__enter__()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Validation has ended."""
        self.open.__exit__(None, None, None)


class Accumulating(skorch.NeuralNet):  # type: ignore[name-defined, misc]
    """Gradients of several batches make a step, as in skorch's manual; what an epoch leaves over is its last step."""

    plan: Plan

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        """No batch was seen."""
        super().on_epoch_begin(*args, **kwargs)
        self.seen = 0

    def train_step(self, batch: Any, **parameters: Any) -> Any:
        """One batch."""
        self.seen += 1
        step = self.train_step_single(batch, **parameters)
        if self.seen % self.plan.every == 0 or self.seen == -(-self.plan.samples // self.plan.batch):
            self.optimizer_.step()
            self.optimizer_.zero_grad()
        return step


def estimator(plan: Plan) -> Any:
    """What is to be fitted, validated on another Dataset."""
    from skorch.helper import predefined_split

    torch.manual_seed(3)
    net = Accumulating(
        Net,
        module__hand=plan.hand,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=Slow,
        optimizer__hand=plan.hand,
        max_epochs=plan.epochs,
        batch_size=plan.batch,
        iterator_train__shuffle=True,
        iterator_train__num_workers=plan.workers,
        iterator_train__collate_fn=Collate(plan.hand),
        train_split=predefined_split(Items(HELD_OUT, plan.hand)),
        callbacks=[Timer(plan)],
        verbose=0,
    )
    net.plan = plan
    return net


def program(plan: Plan) -> torch.nn.Module:
    """`fit` on a Dataset."""
    net = estimator(plan)
    net.fit(Items(plan.samples, plan.hand, plan.item_s), y=None)
    module: torch.nn.Module = net.module_
    return module
