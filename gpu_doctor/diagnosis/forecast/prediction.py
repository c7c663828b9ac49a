"""What a change of settings should give, with the ends between which it should lie: the form of a forecast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

BAND: Final = 0.15
"""Least relative half-width of an interval: two runs of one loop on a shared machine differ by as much."""
FEW_STEPS_BAND: Final = 0.5
"""Over the square root of the measured steps: added to the band."""
LEAST_GAIN: Final = 1.05
"""A smaller gain is not worth an advice."""
LEAST_LOW: Final = 0.79
"""A lower end than this promises a loss: it is that of a step that would stay as it is, after 20 measured steps."""


@dataclass(frozen=True)
class Forecast:
    """What settings should give: samples/s with them over samples/s without, and how sure that is."""

    speedup: float
    low: float
    high: float
    step_s: float
    """Seconds of a step under the settings."""
    why: str
    """What binds the step under the settings, as the end of a sentence: 'limited by ...'."""
    peak_bytes: float | None = None
    """Peak memory expected under the settings, where two sizes were seen on a GPU."""

    @property
    def pays(self) -> bool:
        """Whether it is worth an advice: a gain, and no loss at the low end but for the band."""
        return self.speedup >= LEAST_GAIN and self.low >= LEAST_LOW


def error_band(v: Vitals) -> float:
    """Relative half-width of an interval: the arithmetic's own error, wider after few steps."""
    return BAND + FEW_STEPS_BAND / math.sqrt(max(v.measured_steps, 1))


def between(v: Vitals, best_s: float, worst_s: float, why: str, now_s: float | None = None) -> Forecast:
    """A step that takes between two times: the middle of them, the ends wider by the error band.

    Args:
        v: vitals of the loop as it is.
        best_s: seconds of a step if all that was not measured goes well.
        worst_s: seconds of a step if it does not.
        why: what binds the step.
        now_s: seconds of a step as it is; None = `step_wall_s`.
    """
    now_s, step_s, band = now_s or v.step_wall_s or 0.0, (best_s + worst_s) / 2.0, 1.0 + error_band(v)
    return Forecast(now_s / step_s, now_s / worst_s / band, now_s / best_s * band, step_s, why)
