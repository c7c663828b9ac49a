"""Vitals of world: the process among its like: ranks, GPUs, communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_doctor.recording import Recording
from gpu_doctor.steps import Steps


@dataclass(frozen=True)
class WorldVitals:
    """A part of Vitals."""


def world(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """What is read off a recording for the fields above; a name that is left out is None = not measured.

    Args:
        recording: of a run or a trial. steps: the rows judged, warm-up included. begin_s: end of the warm-up.
    """
    return {}
