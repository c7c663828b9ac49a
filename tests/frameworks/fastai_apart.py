"""fastai's Learner.fit, whose optimizer is torch's inside fastai's OptimWrapper.

fastai is no part of the dev extra: pip would fetch torchvision from PyPI, which is built for CUDA's torch and fails
with the CPU build ("operator torchvision::nms does not exist"), and other packages then fail to import it. The Learner
itself needs no torchvision: this runs where fastai is found. fastai's own optimizers (its default) are none of torch's
and are not heard: the loop then counts a step a batch.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest
import torch
from checks import Checks
from programs import Net, Plan, Slow, loss_of

pytestmark = pytest.mark.slow

learner = importlib.import_module("fastai.learner")


def program(plan: Plan) -> torch.nn.Module:
    """A Learner on plain DataLoaders, with its recorder and gradients accumulated by its own callback."""
    from fastai.callback.core import Callback
    from fastai.callback.training import GradientAccumulation
    from fastai.data.core import DataLoaders
    from fastai.optimizer import OptimWrapper

    class Timer(Callback):
        order = -100

        def before_validate(self) -> None:
            self.open = plan.hand.evaluation()
            self.open.__enter__()

        def after_validate(self) -> None:
            self.open.__exit__(None, None, None)

    torch.manual_seed(3)

    def optimizer(parameters: Any, **options: Any) -> Any:
        return OptimWrapper(parameters, opt=functools.partial(Slow, hand=plan.hand), lr=0.05)

    callbacks: list[Any] = [Timer()]
    if plan.every > 1:
        callbacks.append(GradientAccumulation(plan.every * plan.batch))
    one = learner.Learner(
        DataLoaders(plan.loader(), plan.held_out()),
        Net(plan.hand),
        loss_func=loss_of,
        opt_func=optimizer,
        cbs=callbacks,
    )
    with one.no_bar(), one.no_logging():
        one.fit(plan.epochs, 0.05)
    model: torch.nn.Module = one.model
    return model


class TestFastai(Checks):
    """All checks, without a smaller last batch: fastai accumulates samples over the epochs' ends."""

    program = staticmethod(program)
    samples = 48
