"""skorch: a scikit-learn estimator around a module, with its own loaders, loop and validation after each epoch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

import gpu_doctor
from tests.support.checks import CellChecks, quiet, sick
from tests.support.programs import HELD_OUT, Collate, Items, Net, Plan, Slow

skorch = importlib.import_module("skorch")


class Timer(skorch.callbacks.Callback):  # type: ignore[name-defined]
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


class Accumulating(skorch.NeuralNet):  # type: ignore[name-defined]
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


class TestSkorch(CellChecks):
    """All checks."""

    program = staticmethod(program)

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`partial_fit` of an estimator that was initialized before."""
        net = estimator(plan).initialize()
        space = {"net": net, "model": net.module_, "items": Items(plan.samples, plan.hand, plan.item_s)}
        return "net.partial_fit(items, y=None)\n", space

    def test_a_trial_puts_the_estimator_back(self, tmp_path: Path) -> None:
        """Only the net has a name: its weights, optimizer and history are put back, before a fit and after."""
        code, space = self.cell(sick(str(tmp_path)))
        net = space["net"]
        del space["model"]
        case = gpu_doctor.case(code, space)
        for _ in range(2):
            before = {name: value.clone() for name, value in net.module_.state_dict().items()}
            epochs, counted, optimizer = len(net.history), net.optimizer_.hand.steps, net.optimizer_
            attributes = dict(vars(net))
            with quiet():
                assert case.trial({"num_workers": 2}, steps=20, seconds=30).speedup is not None
            assert all(torch.equal(value, net.module_.state_dict()[name]) for name, value in before.items())
            assert (len(net.history), net.optimizer_.hand.steps) == (epochs, counted)
            assert net.optimizer_ is optimizer
            assert all(vars(net)[name] is value for name, value in attributes.items())
            with quiet():
                net.partial_fit(space["items"], y=None)
