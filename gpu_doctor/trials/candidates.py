"""What a treatment may try next: the settings that the findings ask for, the dearest finding's first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.diagnosis import Diagnosis, Safety
from gpu_doctor.recording import Settings, SettingValue
from gpu_doctor.trials.compare.effect import FASTER

WORTH: Final = FASTER
"""A setting is tried and kept for such a gain or more (3 %)."""
ON_WORKERS: Final = ("prefetch_factor", "persistent_workers")
"""Knobs that act on workers: torch refuses them where there are none."""


@dataclass(frozen=True)
class Move:
    """One thing to try."""

    settings: dict[str, SettingValue]
    """What it adds to the settings that are kept, or changes in them."""
    why: str
    """The rule that asked for it."""


def moves(
    diagnosis: Diagnosis, allowed: Set[Safety], kept: Settings, tried: Sequence[Mapping[str, Any]]
) -> Iterator[Move]:
    """What is worth a trial: what is new, is allowed, and may gain 3 % by its forecast.

    Args:
        diagnosis: of a run under the settings that are kept.
        allowed: kinds of settings that may be tried.
        kept: those found so far.
        tried: the whole settings of each trial so far.
    """
    hints = (one for one in diagnosis.hints if not one.risk)  # turning a risk gains nothing that a trial could show
    for finding in (*diagnosis.findings, *hints):
        for one in finding.prescriptions:
            high = one.predicted_high
            if not one.settings or one.safety not in allowed or (high is not None and high < WORTH):
                continue
            candidate = joined(kept, one.settings)
            if candidate != dict(kept) and candidate not in tried:
                yield Move(dict(one.settings), finding.rule)


def joined(kept: Settings, settings: Settings) -> dict[str, SettingValue]:
    """Settings with others added to them; without workers nothing that acts on workers is left."""
    both = {**kept, **settings}
    gone = ON_WORKERS if settings.get("num_workers") == 0 else ()
    return {name: value for name, value in both.items() if name not in gone}
