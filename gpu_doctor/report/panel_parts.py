"""What sweeps, treatments, changed cells and the anatomy of a step show in the panel, as plain data for the page."""

from __future__ import annotations

from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.recording import PHASES
from gpu_doctor.report import searches
from gpu_doctor.report.plan import told
from gpu_doctor.report.svg import PHASE_COLOURS
from gpu_doctor.trials import Largest, Plan, Sweep

DARK: Final = ("backward",)
"""Phases on whose colour white letters are read better than black ones (at least 4.5 to 1, as WCAG AA asks)."""
MOST_LINES: Final = 600
MOST_LETTERS: Final = 2000


def sweep_state(sweep: Sweep | None) -> dict[str, Any] | None:
    """None before any sweep."""
    if sweep is None:
        return None
    return {
        "sentence": searches.sweep_sentence(sweep),
        "places": [dict(vars(one)) for one in searches.places(sweep)],
        "first": searches.FIRST,
        "notes": [formatting.clean(one, 600) for one in sweep.notes],
        "settings": dict(sweep.best),
    }


def largest_state(largest: Largest | None) -> dict[str, Any] | None:
    """None before any search."""
    if largest is None:
        return None
    size = largest.best_batch_size or largest.batch_size
    return {
        "sentence": searches.largest_sentence(largest),
        "sizes": [dict(vars(one)) for one in searches.sizes(largest)],
        "notes": [formatting.clean(one, 600) for one in largest.notes],
        "settings": {} if size is None else {"batch_size": size},
    }


def anatomy(vitals: Vitals | None, settled: bool) -> dict[str, Any]:
    """Where a mean step goes: shares of the wall-clock after warm-up, and what they are in time.

    Args:
        vitals: so far. settled: nothing runs, so that no further step is to come.
    """
    if vitals is None or vitals.step_wall_s is None:
        return {"total": "", "of": f"no step was measured{'' if settled else ' yet'}", "segments": []}
    segments = []
    for phase in (*PHASES, "other"):
        part = getattr(vitals, f"{phase}_share")
        if part is None or part < 0.0005:
            continue
        segments.append(
            {
                "phase": phase,
                "label": formatting.PHASE_LABELS.get(phase, phase),
                "share": round(float(part), 4),
                "percent": formatting.share(part),
                "time": formatting.seconds(part * vitals.step_wall_s),
                "colour": PHASE_COLOURS[phase],
                "ink": "#fff" if phase in DARK else "#111",
            }
        )
    of = f"mean of {formatting.count(vitals.measured_steps, 'step')}"
    if vitals.warmup_steps:
        of += f", {formatting.grouped(vitals.warmup_steps)} of warm-up left out"
    return {"total": formatting.seconds(vitals.step_wall_s), "of": of, "segments": segments}


def plan_state(plan: Plan | None) -> dict[str, Any] | None:
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
        notes = ["Nothing to change: the cell has these settings already."]
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
