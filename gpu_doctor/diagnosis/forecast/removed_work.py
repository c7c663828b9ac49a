"""What a loop gains when work that trains nothing goes: what the step is left with, and how sure that is.

Two things go. The work itself, which the step clock has. And, on a CPU, what it does to the training after it:
torch finds its code, its objects and small weights out of the caches, and cores asleep. That was measured by drawing
the work before each step at random (torch 2.13, one thread), for two layers of 64 (0.23 to 0.26 ms warm) and of 256
(0.37 ms): after 2, 6 and 12 ms of Python, of sleep or of `tolist()` a step took 0.3, 0.6 and 0.7 ms longer on one day,
and 0.08, 0.3 to 0.5 and 0.45 to 0.6 on another one (0.04 after 1 ms, 0.2 after 4). What is said lies between the days.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

COLD_S: Final = 7e-4
FORGETS_S: Final = 9e-3
"""What a step takes longer after long other work, and the time in which most of that is reached (see above)."""
CACHED_BYTES: Final = 8e6
COLD_BYTES_PER_S: Final = 10e9
"""Weights and gradients that a core may hold in its caches, and how fast they come back (a step with 3.2 MB of weights
took 0.4 ms longer after 12 ms on a busy machine and 1.2 ms on a quiet one)."""
COLD_MOST: Final = 0.65
"""Of the rest of a step at most so much is coldness: the smallest model tried had 0.73."""
CLOCK_DOUBT: Final = 0.05
"""Of a share, as gain: what a few seconds of clocks on shared cores cannot tell."""
MOST: Final = 0.99


@dataclass(frozen=True)
class Gain:
    """A speed-up and the ends between which it is expected."""

    speedup: float
    low: float
    high: float


def at_best(share: float) -> float:
    """The speed-up if all of a share of the wall-clock goes, and the clocks told too little of it."""
    return (1.0 + CLOCK_DOUBT) / (1.0 - min(share, MOST))


def without(
    vitals: Vitals, share: float, most: float | None = None, calls_per_step: float = 1.0, cooling: float = 1.0
) -> Gain:
    """What the loop gains if a share of its wall-clock goes.

    Args:
        vitals: of the loop as it is.
        share: of the wall-clock, 0..1.
        most: the same at most, where lines could not be told apart; None = as `share`.
        calls_per_step: how often the work interrupts training; work of one call is as long as its share.
        cooling: how much of the coldness such work leaves behind, 0..1.

    Returns:
        The gain; `low` without any warming, `high` with all of `most` and twice the warming.
    """
    share, most = min(share, MOST), min(max(most or 0.0, share), MOST)
    cold = cooling * cold_share(vitals, share, calls_per_step)
    usual = 1.0 / (1.0 - share - cold)
    low = (1.0 - CLOCK_DOUBT) / (1.0 - share)
    coldest = 2.0 * cooling * cold_share(vitals, most, calls_per_step)
    left = max(1.0 - most - coldest, (1.0 - COLD_MOST) * (1.0 - most))
    return Gain(usual, max(min(low, usual), 1.0), max((1.0 + CLOCK_DOUBT) / left, usual))


def cold_share(vitals: Vitals, share: float, calls_per_step: float = 1.0) -> float:
    """The share of the wall-clock by which training is slowed because such work lies between its steps; 0 on a GPU.

    There the host's step is hidden behind the device's, or is not: no recording tells.
    """
    step_s = vitals.step_wall_s
    if vitals.on_gpu or not step_s or share <= 0 or calls_per_step <= 0:
        return 0.0
    often = min(calls_per_step, 1.0)
    cached = min(2.0 * float(vitals.setup.parameter_bytes or 0), CACHED_BYTES)
    at_once_s = share * step_s / often
    cold_s = often * (COLD_S + cached / COLD_BYTES_PER_S) * (1.0 - math.exp(-at_once_s / FORGETS_S))
    # Of a loop that is interrupted every n steps, the steps after an interruption alone are cold.
    return min(cold_s / step_s, COLD_MOST * (1.0 - share) * often)
