"""fastai's Learner.fit, with torch's optimizer inside fastai's OptimWrapper."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest
import torch
from checks import CellChecks
from programs import Net, Plan, Slow, loss_of

pytestmark = pytest.mark.slow

learner = importlib.import_module("fastai.learner")


def learner_of(plan: Plan) -> Any:
    """A Learner with its recorder and gradients accumulated by its own callback."""
    importlib.import_module("fastai.callback.progress")  # for `no_bar`
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

    def torchs(parameters: Any, **options: Any) -> Any:
        return OptimWrapper(parameters, opt=functools.partial(Slow, hand=plan.hand), lr=0.05)

    callbacks: list[Any] = [Timer()]
    if plan.every > 1:
        callbacks.append(GradientAccumulation(plan.every * plan.batch))
    return learner.Learner(
        DataLoaders(plan.loader(), plan.held_out()),
        Net(plan.hand),
        loss_func=loss_of,
        cbs=callbacks,
        opt_func=torchs,
    )


def fit(one: Any, plan: Plan) -> None:
    """All epochs, without a bar."""
    with one.no_bar(), one.no_logging():
        one.fit(plan.epochs, 0.05)


def program(plan: Plan) -> torch.nn.Module:
    """Everything in one function."""
    one = learner_of(plan)
    fit(one, plan)
    model: torch.nn.Module = one.model
    return model


class TestFastai(CellChecks):
    """All checks, without a smaller last batch: fastai accumulates samples over the epochs' ends."""

    program = staticmethod(program)
    samples = 48

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        one = learner_of(plan)
        return "fit(learn, plan)\n", {"fit": fit, "learn": one, "plan": plan, "model": one.model}
