"""What a change of settings is expected to give, with the ends between which it should lie: the form of a forecast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

BAND: Final = 0.13
"""Relative error of the worker model where it was tried (2 cores, 1 ms a sample, batch 32, 0..8 workers)."""
FEW_STEPS_BAND: Final = 0.5
"""Over the square root of the measured steps: added to the band."""
LEAST_GAIN: Final = 1.05
"""A forecast below 5 % is within what the forecast cannot tell."""


@dataclass(frozen=True)
class Forecast:
    """What settings should give: samples/s with them over samples/s without, and how sure that is."""

    speedup: float
    low: float
    high: float
    step_s: float
    """Seconds of a step under the settings."""
    why: str
    """What binds the step under the settings, as the end of a sentence: 'the bound is ...'."""
    peak_bytes: float | None = None
    """Peak memory expected under the settings, where two sizes were seen on a GPU."""
    hoped: float | None = None
    """Speed-up if handing batches over costs the least that it may."""
    feared: float | None = None
    """And if it costs the most: below 1 the settings may make the loop slower. None where workers hand over already."""

    @property
    def pays(self) -> bool:
        """Whether it is worth an advice: clear of what a forecast can tell, and no loss where handing over is dear."""
        return self.speedup >= LEAST_GAIN and (self.feared is None or self.feared >= 1.0)


def doubt(*factors: float) -> float:
    """The factor that independent doubts make together: a forecast seldom errs by all of them in one direction.

    Args:
        factors: by which each may be off, 1 and up or its reciprocal.
    """
    return math.exp(math.hypot(*(math.log(one) for one in factors)))


def error_band(v: Vitals) -> float:
    """Relative half-width of an interval: the worker model's own error, wider after few steps."""
    return min(BAND + FEW_STEPS_BAND / math.sqrt(max(v.measured_steps, 1)), 0.6)
