"""fastai's Learner.fit, with torch's optimizer inside fastai's OptimWrapper and with fastai's own, its default."""

from __future__ import annotations

import functools
import importlib
import time
from typing import Any

import pytest
import torch

import gpu_doctor
from tests.support.checks import CellChecks, quiet, trained
from tests.support.programs import BATCH, EPOCHS, HELD_OUT, OPTIMIZER_S, TRAIN, Items, Net, Plan, Slow, loss_of

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

    class Timer(Callback):
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


class TestFastai(CellChecks):
    """All checks, without a smaller last batch: fastai accumulates samples over the epochs' ends."""

    program = staticmethod(program)
    samples = 48

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        one = learner_of(plan)
        return "fit(learn, plan)\n", {"fit": fit, "learn": one, "plan": plan, "model": one.model}


class TestItsOwnOptimizer(CellChecks):
    """All checks, on fastai's Adam, which is none of torch's optimizers."""

    program = staticmethod(functools.partial(program, own_optimizer=True))
    samples = 48

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        one = learner_of(plan, own_optimizer=True)
        return "fit(learn, plan)\n", {"fit": fit, "learn": one, "plan": plan, "model": one.model}


@pytest.mark.parametrize("own_optimizer", [False, True])
def test_its_own_loaders_are_counted(own_optimizer: bool) -> None:
    """fastai's DataLoader is none of torch's: its batches are heard, not its setup, and no knob can turn it."""
    plan = Plan(every=1)
    case = gpu_doctor.case(lambda: program(plan, own_optimizer=own_optimizer, own_loaders=True))
    with quiet():
        case.run()
    assert case.diagnosis is not None
    steps, vitals = trained(case.recordings[0]), case.diagnosis.vitals
    assert vitals.steps == steps.count.sum() == plan.hand.steps == EPOCHS * (TRAIN // BATCH)
    assert vitals.samples == steps.samples.sum() == plan.hand.samples == plan.hand.steps * BATCH
    assert vitals.evaluation_share is not None
    assert vitals.evaluation_share > 0 and vitals.epochs == EPOCHS
    assert case.recordings[0].setup.loaders == ()
    effect = case.trial({"num_workers": 2}, steps=20, seconds=30)
    assert effect.outcome == "refused" and effect.reason
