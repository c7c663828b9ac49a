"""The measured ceiling of a loop: its speed with an ideal loader, and the part of it that a cure reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import FASTER, Effect

OF_THE_INPUT: Final = frozenset({"num_workers", "pin_memory", "persistent_workers", "prefetch_factor"})
"""Knobs that act only on how batches are prepared."""
DONE: Final = ("completed", "budget-reached")


@dataclass(frozen=True)
class Reached:
    """The part of the ceiling that some settings reach: the ratio of two speed-ups over the code as written."""

    share: float
    """Samples/s with the settings over samples/s with an ideal loader, 0 to about 1."""
    low: float
    """Lower end of its 95 % interval. The two trials ran separately, so their squared errors add up on a logarithmic
    scale."""
    high: float

    def __str__(self) -> str:
        if self.low * FASTER >= 1.0:
            return f"as fast as with an ideal loader, within {formatting.share(FASTER - 1.0)}"
        # A value above the ceiling is only the error of both trials.
        low, share, high = (formatting.share(min(value, 1.0)) for value in (self.low, self.share, self.high))
        return f"{share} ({low} to {high}) of what any loader could give"


def no_ideal(setup: Setup) -> str:
    """Returns the reason why no ideal loader can be tried in a loop, in one sentence; '' if one can."""
    ((name, value),) = knobs.IDEAL_LOADER.items()
    return knobs.known(name).reason(value, setup)


def is_bound(effect: Effect) -> bool:
    """Returns True if a trial measured a bound instead of settings to train with."""
    return any(name in knobs.BOUNDS for name in effect.settings)


def ceiling(effects: Sequence[Effect]) -> Effect | None:
    """Returns the newest trial with an ideal loader that has a speed-up over the code as written, or None."""
    found = [effect for effect in effects if dict(effect.settings) == dict(knobs.IDEAL_LOADER) and _measured(effect)]
    return found[-1] if found else None


def reached(effect: Effect, ideal: Effect | None) -> Reached | None:
    """Returns the part of the ceiling that a trial reached; None if it changed more than the input, or has no interval.

    Args:
        effect: effect of settings against the code as written.
        ideal: effect of the ideal loader in the same loop; None if it was not measured.
    """
    if ideal is None or not _measured(effect) or not effect.settings or not OF_THE_INPUT.issuperset(effect.settings):
        return None
    value, spread = 0.0, 0.0
    for trial, sign in ((effect, 1.0), (ideal, -1.0)):
        if not trial.speedup or not trial.low or not trial.high:
            return None
        value += sign * math.log(trial.speedup)
        spread += (0.5 * math.log(trial.high / trial.low)) ** 2
    half = math.sqrt(spread)
    return Reached(math.exp(value), math.exp(value - half), math.exp(value + half))


def _measured(effect: Effect) -> bool:
    return effect.speedup is not None and effect.outcome in DONE and not effect.baseline_settings
