"""Accelerate: `prepare` wraps model, optimizer, loaders and schedule; `accumulate` makes one step of several batches.

Its loaders are DataLoaders of its own that fetch a batch ahead and run their parent's iterator by hand.
"""

from __future__ import annotations

from typing import Any

from tests.support.checks import CellChecks
from tests.support.framework_programs.accelerate import CELL, accelerate, program
from tests.support.programs import Net, Plan, Slow, loss_of


class TestAccelerate(CellChecks):
    """All checks."""

    program = staticmethod(program)

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """The loop alone."""
        accelerator = accelerate.Accelerator(cpu=True)
        model = Net(plan.hand)
        prepared = accelerator.prepare(model, Slow(model.parameters(), plan.hand), plan.loader())
        names = ("model", "optimizer", "batches")
        return CELL, {**dict(zip(names, prepared, strict=True)), "accelerator": accelerator, "loss_of": loss_of}
