"""A treatment's result as plain data for the page: the waterfall, what was not kept, the change, the rest by hand."""

from __future__ import annotations

from typing import Any

from gpu_doctor.notebook.folds import fix_shown
from gpu_doctor.report_plan import PlanLike, told


def plan_state(plan: PlanLike | None) -> dict[str, Any] | None:
    """None before any treatment."""
    if plan is None:
        return None
    said = told(plan)
    return {
        "sentence": said.sentence,
        "steps": [dict(vars(one)) for one in said.steps],
        "dropped": [dict(vars(one)) for one in said.dropped],
        "notes": list(said.notes),
        "byHand": list(said.by_hand),
        "settings": dict(plan.settings),
        "fix": fix_shown(plan.fix) if plan.settings else None,
    }
