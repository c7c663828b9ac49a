"""How fast the machine of a run is at what a change of settings would add or take away, timed there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speeds:
    """Timed when a run is over, most of them once in a process; None = not timed, as what it tells of was not there."""

    python_round_s: float | None = None
    """CPU seconds of a round of a small Python loop."""
