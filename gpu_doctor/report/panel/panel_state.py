"""What the panel shows as plain data: a pure function of a case; the page only draws it."""

from __future__ import annotations

from typing import Any

from gpu_doctor import formatting
from gpu_doctor.recording import Setup
from gpu_doctor.report.panel.controls import MOST_SECONDS, MOST_STEPS, UNKNOWN, controls
from gpu_doctor.report.panel_input import BUSY, PanelInput, raised
from gpu_doctor.report.sections import SECTIONS
from gpu_doctor.trials import SWEEP_TRIALS, no_largest
from gpu_doctor.trials.knobs import KnobTable


def state(shown: PanelInput, knobs: KnobTable) -> dict[str, Any]:
    """Everything the page draws, by section, ready for JSON; figures are in words already."""
    known = shown.setup != Setup() and shown.status != "starting"
    sections = {name: piece for section in SECTIONS for name, piece in section.panel(shown).items()}
    return sections | {
        "status": shown.status,
        "busy": shown.status in BUSY,
        "message": formatting.clean(shown.message or raised(shown), 600),
        "knobs": controls(knobs, shown.setup, known, shown.turned),
        "trial": {
            "steps": shown.trial_steps,
            "seconds": shown.trial_seconds,
            "mostSteps": MOST_STEPS,
            "mostSeconds": MOST_SECONDS,
        },
        "sweepMost": SWEEP_TRIALS,
        "noLargest": no_largest(shown.setup) if known else UNKNOWN,
        "fixes": dict(shown.fixes),
        "before": shown.before,
        "output": shown.output,
    }
