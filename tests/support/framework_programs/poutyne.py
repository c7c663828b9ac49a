"""Poutyne's Model, as its manual shows it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.support.programs import Net, Plan, Slow, loss_of

poutyne = importlib.import_module("poutyne")


class Timer(poutyne.Callback):  # type: ignore[name-defined, misc]
    """Times validation by hand."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.open = plan.hand.evaluation()

    def on_valid_begin(self, logs: Any) -> None:
        """Before its first batch is asked for."""
        self.open = self.plan.hand.evaluation()
        self.open.__enter__()

    def on_valid_end(self, logs: Any) -> None:
        """After its last batch."""
        self.open.__exit__(None, None, None)


def model_of(plan: Plan) -> Any:
    """A Model as its manual shows it."""
    torch.manual_seed(3)
    network = Net(plan.hand)
    return poutyne.Model(network, Slow(network.parameters(), plan.hand), loss_of)


def fit(model: Any, plan: Plan, loader: Any) -> None:
    """All epochs."""
    model.fit_generator(
        loader,
        plan.held_out(),
        epochs=plan.epochs,
        batches_per_step=plan.every,
        callbacks=[Timer(plan)],
        verbose=False,
    )


def program(plan: Plan) -> torch.nn.Module:
    """Everything in one function."""
    model = model_of(plan)
    fit(model, plan, plan.loader())
    network: torch.nn.Module = model.network
    return network
