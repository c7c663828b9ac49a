"""Chooses the settings that a treatment tries next: those for the costliest finding first.

If a finding prescribes workers, the forecast determines their number; for short epochs they stay alive between epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.diagnosis import Diagnosis, Safety, Vitals, fewest_near_best, worker_counts
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.recording import Settings, SettingValue
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import FASTER
from gpu_doctor.trials.knobs.knob import Refused

WORTH: Final = FASTER
"""Smallest gain for which a setting is tried and kept (3 %)."""
ENOUGH: Final = 1.02
"""The smallest number of workers is tried whose forecast is within 2 % of the best."""
ON_WORKERS: Final = ("prefetch_factor", "persistent_workers")
"""Knobs that need workers: torch refuses them without."""


@dataclass(frozen=True)
class Move:
    """A change of the settings to try."""

    settings: dict[str, SettingValue]
    """Settings to add to those kept so far, or to change in them."""
    why: str
    """Name of the rule that prescribes it."""


def moves(
    diagnosis: Diagnosis, allowed: Set[Safety], kept: Settings, tried: Sequence[Mapping[str, Any]]
) -> Iterator[Move]:
    """Yields the moves worth a trial: new, allowed, and with a forecast gain of 3 % or more.

    Args:
        diagnosis: diagnosis of a run under the settings kept so far.
        allowed: kinds of settings that may be tried.
        kept: settings kept so far.
        tried: the whole settings of each trial so far.
    """
    hints = (hint for hint in diagnosis.hints if not hint.risk)  # turning a risk gains nothing that a trial could show
    for finding in (*diagnosis.findings, *hints):
        for prescription in finding.prescriptions:
            high = prescription.predicted_high
            if not prescription.settings or prescription.safety not in allowed or (high is not None and high < WORTH):
                continue
            settings = dict(prescription.settings)
            if set(settings) == {"num_workers"} and int(settings["num_workers"]) > (diagnosis.vitals.workers or 0):
                settings = _workers(diagnosis.vitals, kept, tried) or settings
            candidate = joined(kept, settings)
            if candidate != dict(kept) and candidate not in tried:
                yield Move(settings, finding.rule)


def joined(kept: Settings, settings: Settings) -> dict[str, SettingValue]:
    """Returns settings with others added; without workers, knobs that need them are dropped."""
    both = {**kept, **settings}
    gone = ON_WORKERS if settings.get("num_workers") == 0 else ()
    return {name: value for name, value in both.items() if name not in gone}


def _workers(v: Vitals, kept: Settings, tried: Sequence[Mapping[str, Any]]) -> dict[str, SettingValue]:
    """Returns the smallest number of workers near the best forecast; empty if none gains."""
    staying: dict[str, SettingValue] = {"persistent_workers": True} if _could_stay(v) else {}
    seen = {}
    for count in worker_counts(v):
        settings = {"num_workers": count, **staying}
        found = forecast(v, settings) if joined(kept, settings) not in tried else None
        if found is not None:
            seen[count] = found
    best = max((other.speedup for other in seen.values()), default=0.0)
    chosen = fewest_near_best(seen, ENOUGH) if best >= WORTH else None
    return {} if chosen is None else {"num_workers": chosen[0], **staying}


def _could_stay(v: Vitals) -> bool:
    """True if workers may be kept over epochs, and there are epochs to keep them over."""
    loader = v.loader
    if loader is None or loader.persistent_workers or v.settings.get("persistent_workers") or (v.epochs or 1) < 2:
        return False
    try:
        knobs.allow({"num_workers": max(v.workers or 0, 1), "persistent_workers": True}, v.setup)
    except Refused:
        return False
    return True
