"""Where a mean step goes, as plain data for the page: the pieces of the anatomy bar."""

from __future__ import annotations

from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.measure import Vitals
from gpu_doctor.recording import PHASES
from gpu_doctor.report.svg import PHASE_COLOURS

DARK: Final = ("backward",)
"""Phases on whose colour white letters are read better than black ones (at least 4.5 to 1, as WCAG AA asks)."""


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
