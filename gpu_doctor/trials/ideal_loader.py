"""The measured ceiling of a loop: its speed with an ideal loader, and how much of that a cure of the input reaches."""

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
"""The knobs that act on how batches are made ready, and on nothing else."""
DONE: Final = ("completed", "budget-reached")


@dataclass(frozen=True)
class Reached:
    """Which part of the ceiling some settings reach: the quotient of two speed-ups over the code as written."""

    share: float
    """Samples/s with the settings over samples/s with an ideal loader, 0 to about 1."""
    low: float
    """Ends of its 95 % interval: the sides of the two trials ran apart, so that their errors add up in squares on a
    logarithmic scale."""
    high: float

    def __str__(self) -> str:
        if self.low * FASTER >= 1.0:
            return f"as fast as with an ideal loader, within {formatting.share(FASTER - 1.0)}"
        # More than the ceiling is nothing but the error of both.
        low, share, high = (formatting.share(min(one, 1.0)) for one in (self.low, self.share, self.high))
        return f"{share} ({low} to {high}) of what any loader could give"


def no_ideal(setup: Setup) -> str:
    """Why no ideal loader can be tried in a loop, in one sentence; empty where it can."""
    ((name, value),) = knobs.IDEAL_LOADER.items()
    return knobs.known(name).reason(value, setup)


def is_bound(effect: Effect) -> bool:
    """Whether a trial measured a bound and no settings to train with."""
    return any(name in knobs.BOUNDS for name in effect.settings)


def ceiling(effects: Sequence[Effect]) -> Effect | None:
    """The newest trial of the code as written with an ideal loader that has a figure; None where there is none."""
    found = [one for one in effects if dict(one.settings) == dict(knobs.IDEAL_LOADER) and _measured(one)]
    return found[-1] if found else None


def reached(effect: Effect, ideal: Effect | None) -> Reached | None:
    """Which part of the ceiling a trial reached; None where it changed more than the input, or has no interval.

    Args:
        effect: of settings against the code as written.
        ideal: the ceiling of the same loop.
    """
    if ideal is None or not _measured(effect) or not effect.settings or not OF_THE_INPUT.issuperset(effect.settings):
        return None
    value, spread = 0.0, 0.0
    for one, sign in ((effect, 1.0), (ideal, -1.0)):
        if not one.speedup or not one.low or not one.high:
            return None
        value += sign * math.log(one.speedup)
        spread += (0.5 * math.log(one.high / one.low)) ** 2
    half = math.sqrt(spread)
    return Reached(math.exp(value), math.exp(value - half), math.exp(value + half))


def _measured(effect: Effect) -> bool:
    return effect.speedup is not None and effect.outcome in DONE and not effect.baseline_settings
