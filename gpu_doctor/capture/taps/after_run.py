"""Times anew, when the run is over, what a figure is wanted of that depends on this machine alone.

On the training thread, when nothing of ours stands in torch any more; on the CPU, so that a GPU is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import (
    fused_cost,
    logits_cost,
    pairs_cost,
    python_cost,
)
from gpu_doctor.recording import Speeds

Timings: TypeAlias = tuple[tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]], ...]
"""What is timed -> from the facts of the run to those that the figure adds, or is added to; none where it has no such
thing."""
ON_A_CPU: Final[Timings] = (
    ("unused logits", logits_cost.timed),
    ("comparison of pairs", pairs_cost.timed),
    ("fused optimizer", fused_cost.timed),
)
"""For a run that trained on a CPU, which is what they time."""
SPEEDS: Final[Timings] = (("pace of Python", python_cost.timed),)
"""For all runs; the figures are fields of `Speeds`."""


def time_what_ran(recorder: Recorder) -> None:
    """Lets the recorder of an ended run know all figures; what cannot be timed is noted."""
    facts = recorder.facts
    if facts.get("device", "cpu") == "cpu":
        for what, timed in ON_A_CPU:
            facts.update(_told(recorder, what, timed, facts))
    speeds = Speeds()
    for what, timed in SPEEDS:
        speeds = replace(speeds, **_told(recorder, what, timed, facts))
    facts["speeds"] = speeds


def _told(
    recorder: Recorder, what: str, timed: Callable[[Mapping[str, Any]], dict[str, Any]], facts: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return timed(facts)
    except Exception as error:
        recorder.note(f"The {what} could not be timed: {error}")
        return {}
