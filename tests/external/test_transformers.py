"""transformers' Trainer on a tiny random BERT: evaluation after each epoch, checkpoints, a schedule, clipped gradients.

The Trainer wraps model, optimizer and loaders by Accelerate, pulls all batches of a step before it computes, and makes
its loaders itself from a Dataset. Nothing is downloaded: the model is made from its configuration.
"""

from __future__ import annotations

from typing import Any

from tests.support.checks import CellChecks
from tests.support.framework_programs.transformers import program, trainer_of
from tests.support.programs import Plan


class TestTransformers(CellChecks):
    """All checks."""

    program = staticmethod(program)

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`train` alone."""
        trainer = trainer_of(plan)
        return "trainer.train()\n", {"trainer": trainer, "model": trainer.model}
