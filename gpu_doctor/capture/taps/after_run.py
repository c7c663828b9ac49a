"""Times anew, when the run is over, what a figure is wanted of that depends on this machine alone.

Only for a run on a CPU: on the training thread, when nothing of ours stands in torch any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import attention_cost, logits_cost, operation_cost, pairs_cost

TIMINGS: Final[tuple[tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]], ...]] = (
    ("shortest operation", operation_cost.timed),
    ("attention", attention_cost.timed),
    ("unused logits", logits_cost.timed),
    ("comparison of pairs", pairs_cost.timed),
)
"""What is timed -> from the facts of the run to those that the figure adds, or is added to; none where it has no such
thing."""


def time_what_ran(recorder: Recorder) -> None:
    """Lets the recorder of an ended run know all figures; what cannot be timed is noted."""
    facts = recorder.facts
    if facts.get("device", "cpu") != "cpu":
        return
    for what, timed in TIMINGS:
        try:
            facts.update(timed(facts))
        except Exception as error:
            recorder.note(f"The {what} could not be timed: {error}")
