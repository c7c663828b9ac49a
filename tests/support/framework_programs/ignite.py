"""Ignite's engines, as its manual shows them."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.support.programs import Net, Plan, Slow, loss_of

engines = importlib.import_module("ignite.engine")


def program(plan: Plan) -> torch.nn.Module:
    """A supervised trainer and evaluator as in Ignite's manual."""
    from ignite.metrics import Accuracy

    torch.manual_seed(3)
    model = Net(plan.hand)
    optimizer = Slow(model.parameters(), plan.hand)
    held_out = plan.held_out()
    trainer = engines.create_supervised_trainer(model, optimizer, loss_of, gradient_accumulation_steps=plan.every)
    evaluator = engines.create_supervised_evaluator(model, {"accuracy": Accuracy()})

    @trainer.on(engines.Events.EPOCH_COMPLETED)  # type: ignore[untyped-decorator]
    def evaluate(engine: Any) -> None:
        with plan.hand.evaluation():
            evaluator.run(held_out)

    trainer.run(plan.loader(), max_epochs=plan.epochs)
    return model
