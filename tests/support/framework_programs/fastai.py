"""fastai's Learner, as its manual shows it."""

from __future__ import annotations

import functools
import importlib
import time
from typing import Any

import torch

from tests.support.programs import HELD_OUT, OPTIMIZER_S, Items, Net, Plan, Slow, loss_of

learner = importlib.import_module("fastai.learner")


def learner_of(plan: Plan, own_optimizer: bool = False, own_loaders: bool = False) -> Any:
    """A Learner with its recorder and gradients accumulated by its own callback.

    Args:
        own_optimizer: with fastai's Adam, the default, in place of one of torch's. own_loaders: with fastai's
            DataLoader, as its manual makes them, in place of torch's.
    """
    importlib.import_module("fastai.callback.progress")  # for `no_bar`
    from fastai.callback.core import Callback
    from fastai.callback.training import GradientAccumulation
    from fastai.data.core import DataLoaders
    from fastai.optimizer import Adam, OptimWrapper

    class Timer(Callback):  # type: ignore[misc]
        order = -100

        def before_validate(self) -> None:
            self.open = plan.hand.evaluation()
            self.open.__enter__()

        def after_validate(self) -> None:
            self.open.__exit__(None, None, None)

        def after_step(self) -> None:
            if own_optimizer:
                plan.hand.stepped()

    torch.manual_seed(3)

    def torchs(parameters: Any, **options: Any) -> Any:
        return OptimWrapper(parameters, opt=functools.partial(Slow, hand=plan.hand), lr=0.05)

    def fastais(parameters: Any, **options: Any) -> Any:
        """The default, whose steps are slept for by a callback that comes once for each tensor."""
        adam = Adam(parameters, **options)

        def nap(p: torch.Tensor, **state: Any) -> None:
            with plan.hand.time("optimizer"):
                time.sleep(OPTIMIZER_S / len(adam.all_params()))

        adam.cbs.append(nap)
        return adam

    callbacks: list[Any] = [Timer()]
    if plan.every > 1:
        callbacks.append(GradientAccumulation(plan.every * plan.batch))
    sets = Items(plan.samples, plan.hand, plan.item_s), Items(HELD_OUT, plan.hand)
    loaders = (
        DataLoaders.from_dsets(*sets, bs=plan.batch, num_workers=plan.workers)
        if own_loaders
        else DataLoaders(plan.loader(), plan.held_out())
    )
    return learner.Learner(
        loaders,
        Net(plan.hand),
        loss_func=loss_of,
        cbs=callbacks,
        opt_func=fastais if own_optimizer else torchs,
    )


def fit(one: Any, plan: Plan) -> None:
    """All epochs, without a bar."""
    with one.no_bar(), one.no_logging():
        one.fit(plan.epochs, 0.05)


def program(plan: Plan, **options: bool) -> torch.nn.Module:
    """Everything in one function."""
    one = learner_of(plan, **options)
    fit(one, plan)
    model: torch.nn.Module = one.model
    return model
