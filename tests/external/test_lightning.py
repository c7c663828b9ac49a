"""Lightning's Trainer.fit: a sanity check, validation after each epoch, accumulated gradients, logged values, a bar."""

from __future__ import annotations

from typing import Any

from tests.support.checks import CellChecks, Checks
from tests.support.framework_programs.lightning import (
    Lit,
    program,
    program_with_forward,
    trainer_of,
)
from tests.support.programs import Plan


class TestLightning(CellChecks):
    """All checks, on the program whose LightningModule is never called itself."""

    program = staticmethod(program)
    again_refused = "trains nothing"

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        model = Lit(plan)
        space = {"model": model, "trainer": trainer_of(plan), "batches": plan.loader(), "held_out": plan.held_out()}
        return "trainer.fit(model, batches, held_out)\n", space


class TestLightningForward(Checks):
    """All checks, on `self(x)`."""

    program = staticmethod(program_with_forward)
