"""How a run stands, in words for the panel: what its verdict waits for, how it ended, what it raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS

if TYPE_CHECKING:
    from gpu_doctor.report.panel.state import PanelInput

PROMISED_S: Final = 5.0
"""A first verdict comes within so many seconds of a loop whose steps are short; then it is said what it waits for."""


def awaited(shown: PanelInput) -> str:
    """What the verdict waits for, or why there is none."""
    if shown.status == "starting":
        return "Ready: the verdict comes with the first steps."
    if shown.status in ("waiting", "idle"):
        return "No verdict: the notes say why." if shown.recordings else "Nothing was recorded yet."
    if shown.elapsed_s < PROMISED_S:
        return "Listening to the loop: the verdict comes within 30 steps or 5 seconds."
    if not shown.step_count:
        return "No training step yet: the verdict comes with the first ones."
    measured = shown.diagnosis.vitals.measured_steps if shown.diagnosis is not None else 0
    return f"Listening to the loop: {measured} of the {FEWEST_STEPS} steps that a verdict takes were measured."


def ended(shown: PanelInput) -> str:
    """How the newest run ended, if nothing goes on and it did not simply come to its end."""
    if shown.status != "idle" or _outcome(shown) == "completed":
        return ""
    return formatting.OUTCOME_LABELS.get(_outcome(shown), "")


def failed(shown: PanelInput) -> bool:
    """Whether the newest run broke, and nothing goes on."""
    return shown.status == "idle" and _outcome(shown) in ("failed", "out-of-memory")


def raised(shown: PanelInput) -> str:
    """What the cell raised, if it did: its traceback stands below all that it wrote."""
    if shown.status != "idle" or _outcome(shown) != "failed" or shown.effects:
        return ""
    run = shown.recordings[-1]
    steps = len(run.steps)
    seen = f"what is shown is of the {formatting.count(steps, 'step')} before" if steps else "no step had ended"
    return f"The cell raised {formatting.clean(run.reason, 300) or 'an exception'}; {seen}."


def _outcome(shown: PanelInput) -> str:
    return shown.recordings[-1].outcome if shown.recordings else "completed"
