"""Vitals of hardware: what the card and the machine do to the speed: clocks, neighbours, links, energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_doctor.recording import Recording
from gpu_doctor.steps import Steps


@dataclass(frozen=True)
class HardwareVitals:
    """A part of Vitals."""


def hardware(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """What is read off a recording for the fields above; a name that is left out is None = not measured.

    Args:
        recording: of a run or a trial. steps: the rows judged, warm-up included. begin_s: end of the warm-up.
    """
    return {}
