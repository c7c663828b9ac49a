"""Poutyne: a Keras-like `fit` with its own loop, accumulation, validation after each epoch and callbacks."""

from __future__ import annotations

from typing import Any

from tests.support.checks import CellChecks
from tests.support.framework_programs.poutyne import fit, model_of, program
from tests.support.programs import Plan


class TestPoutyne(CellChecks):
    """All checks."""

    program = staticmethod(program)

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        model = model_of(plan)
        space = {"fit": fit, "net": model, "plan": plan, "loader": plan.loader(), "model": model.network}
        return "fit(net, plan, loader)\n", space
