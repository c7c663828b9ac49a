"""Computes the panel's state as plain data, a pure function of a case; the page only draws it."""

from __future__ import annotations

from typing import Any

from gpu_doctor import formatting
from gpu_doctor.labels import LABELS
from gpu_doctor.recording import Setup
from gpu_doctor.report.contract import Budget, PanelState, as_json
from gpu_doctor.report.panel.controls import MOST_SECONDS, MOST_STEPS, UNKNOWN, controls
from gpu_doctor.report.panel.forecasts import forecasts
from gpu_doctor.report.panel.recent import Memory
from gpu_doctor.report.panel_input import BUSY, PanelInput, raised
from gpu_doctor.report.sections import SECTIONS
from gpu_doctor.trials import SWEEP_TRIALS, no_ideal, no_largest, no_ray
from gpu_doctor.trials.knobs import KnobTable


def state(shown: PanelInput, knobs: KnobTable, memory: Memory | None = None) -> dict[str, Any]:
    """Returns everything the page draws, by section, ready for JSON (see `contract.PanelState`).

    Args:
        shown: current state of the case.
        knobs: knobs that the panel offers.
        memory: cache of the panel; None to compute everything.
    """
    memory = memory or Memory()
    known = shown.setup != Setup() and shown.status != "starting"
    offered = controls(knobs, shown.setup, known, shown.turned, memory.controls)
    sections = {name: piece for section in SECTIONS for name, piece in section.panel(shown).items()}
    found: dict[str, Any] = as_json(
        PanelState(
            **sections,
            labels=LABELS,
            status=shown.status,
            busy=shown.status in BUSY,
            message=formatting.clean(shown.message or raised(shown), 600),
            knobs=offered,
            forecasts=forecasts(shown, offered, memory.forecasts) if known else (),
            trial=Budget(shown.trial_steps, shown.trial_seconds, MOST_STEPS, MOST_SECONDS),
            sweep_most=SWEEP_TRIALS,
            no_sweep=no_ray(),
            no_trials=shown.no_trials,
            no_largest=no_largest(shown.setup) if known else UNKNOWN,
            no_ideal=no_ideal(shown.setup) if known else UNKNOWN,
            fixes=shown.fixes,
            before=shown.before,
        )
    )
    return found
