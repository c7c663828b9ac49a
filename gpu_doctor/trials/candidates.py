"""What a treatment may try next: the settings that the findings ask for, the dearest finding's first.

Where a finding asks for workers, the forecast says how many; over short epochs they are kept alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.diagnosis import Diagnosis, Safety, Vitals, enough, worker_counts
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.recording import Settings, SettingValue
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import FASTER
from gpu_doctor.trials.knobs.knob import Refused

WORTH: Final = FASTER
"""A setting is tried and kept for such a gain or more (3 %)."""
ENOUGH: Final = 1.02
"""Of several numbers of workers the smallest is tried that is forecast within 2 % of the best."""
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
            settings = dict(one.settings)
            if set(settings) == {"num_workers"} and int(settings["num_workers"]) > (diagnosis.vitals.workers or 0):
                settings = _workers(diagnosis.vitals, kept, tried) or settings
            candidate = joined(kept, settings)
            if candidate != dict(kept) and candidate not in tried:
                yield Move(settings, finding.rule)


def joined(kept: Settings, settings: Settings) -> dict[str, SettingValue]:
    """Settings with others added to them; without workers nothing that acts on workers is left."""
    both = {**kept, **settings}
    gone = ON_WORKERS if settings.get("num_workers") == 0 else ()
    return {name: value for name, value in both.items() if name not in gone}


def _workers(v: Vitals, kept: Settings, tried: Sequence[Mapping[str, Any]]) -> dict[str, SettingValue]:
    """The cheapest number of workers near the best by the forecast; empty where no further one gains."""
    staying: dict[str, SettingValue] = {"persistent_workers": True} if _could_stay(v) else {}
    seen = {}
    for count in worker_counts(v):
        settings = {"num_workers": count, **staying}
        found = forecast(v, settings) if joined(kept, settings) not in tried else None
        if found is not None:
            seen[count] = found
    best = max((one.speedup for one in seen.values()), default=0.0)
    chosen = enough(seen, ENOUGH) if best >= WORTH else None
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
