"""A treatment's result as plain data for the page: the waterfall, what was not kept, the change, the rest by hand."""

from __future__ import annotations

from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell.fix import Fix
from gpu_doctor.report.plan import PlanLike, told

MOST_LINES: Final = 600
MOST_LETTERS: Final = 2000


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


def fix_shown(fix: Fix) -> dict[str, Any]:
    """A fix for the page: `lines` (kind, text) of the diff, `cells` (label, text) whole, `notes`, `paste`."""
    lines = [
        [kind, formatting.clean(text, MOST_LETTERS)] for kind, text in fix.lines() if kind not in ("note", "paste")
    ]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], ["place", f"and {formatting.count(len(lines) - MOST_LINES, 'more line')}"]]
    notes = [formatting.clean(note, 600) for note in fix.notes]
    if not fix.cells and not fix.paste and not notes:
        notes = ["Nothing to change: the cell is as it should be."]
    return {
        "lines": lines,
        # What is copied is the user's own text to the letter, but for halves of letters, which no page can hold.
        "cells": [{"label": formatting.clean(one.label, 80), "text": _whole(one.after)} for one in fix.cells],
        "notes": notes,
        "paste": _whole(fix.paste),
        "complete": fix.complete,
        "error": "",
    }


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
