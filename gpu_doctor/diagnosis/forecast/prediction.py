"""Forecast: the speedup expected of a change of settings, with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

BAND: Final = 0.15
"""Least relative half-width of an interval: two runs of one loop on a shared machine differ by as much."""
FEW_STEPS_BAND: Final = 0.5
"""This over the square root of the measured steps is added to the band."""
LEAST_GAIN: Final = 1.05
"""Smallest speedup that is worth advising."""
LEAST_LOW: Final = 0.79
"""Lowest end of an interval that is still advised: the band alone puts an unchanged step there after 20 steps."""


@dataclass(frozen=True)
class Forecast:
    """The expected speedup, samples/s with the settings over samples/s without, and its interval."""

    speedup: float
    low: float
    high: float
    step_s: float
    """Seconds of a step under the settings."""
    why: str
    """The stage that limits the step under the settings; it completes 'limited by ...'."""
    peak_bytes: float | None = None
    """Expected peak memory under the settings; None unless two batch sizes were measured on a GPU."""

    @property
    def pays(self) -> bool:
        """True if it is worth advising: it gains, and the low end loses no more than the band explains."""
        return self.speedup >= LEAST_GAIN and self.low >= LEAST_LOW


def error_band(v: Vitals) -> float:
    """Returns the relative half-width of an interval; it is wider after few steps."""
    return BAND + FEW_STEPS_BAND / math.sqrt(max(v.measured_steps, 1))


def between(v: Vitals, best_s: float, worst_s: float, why: str, now_s: float | None = None) -> Forecast:
    """Builds the forecast of a step between two times: their middle, with ends widened by the error band.

    Args:
        v: vitals of the loop as it is.
        best_s: seconds of a step at best, for what was not measured.
        worst_s: seconds of a step at worst.
        why: the stage that limits the step.
        now_s: seconds of a step as it is; None = `step_wall_s`.
    """
    now_s, step_s, band = now_s or v.step_wall_s or 0.0, (best_s + worst_s) / 2.0, 1.0 + error_band(v)
    return Forecast(now_s / step_s, now_s / worst_s / band, now_s / best_s * band, step_s, why)
