"""The ratio of two rates with its 95 % interval, from pairs of runs that took turns; pure numpy, nothing random.

Two things make a measured ratio uncertain, and they are added up on the log scale:

- inside a run, steps vary and neighbours are alike (bursts of a loader, stalls, drift). A bootstrap over blocks of
  consecutive steps sees that; this one lets its blocks fade in and out (tapered block bootstrap, Paparoditis and
  Politis 2001), so that it makes no difference whether a block holds two or three bursts. Its variance has a closed
  form, so nothing is drawn. Both runs of a pair share their blocks, because the same stretch of a run does the same
  work on both sides: a checkpoint every 20 steps is in both and cancels.
- between runs, the machine itself changes. Two or three pairs are too few to estimate that alone, so their spread is
  moderated by a prior: so many pairs' worth of the spread that blocks and usual run-to-run jitter lead to expect
  (moderated t, Smyth 2004). One lucky pair can thus not make an interval of no width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.recording import Column

BLOCK_SHARE: Final = 1 / 3
"""Length of a block as a share of the run's measured steps: 16 of 48. Half of its weight lies in a third of it."""
LONGEST_BLOCK: Final = 200
"""Steps; in a run of thousands, what is further apart than this has nothing to do with each other."""
FEWEST_ROWS: Final = 8
"""Rows of either side below which an interval would be a guess."""
RUN_TO_RUN: Final = 0.015
"""Usual spread of log samples/s between two runs of the same code next to each other, beyond what blocks show
(measured on real loops by benchmarks/effect.py)."""
PRIOR_PAIRS: Final = 4.0
"""How many pairs' worth of belief the prior spread has."""
_Z: Final = 1.959964


@dataclass(frozen=True)
class Stretch:
    """The measured rows of one run: host seconds and amount of work (samples or steps), same length."""

    wall_s: Column
    amount: Column

    @property
    def rate(self) -> float:
        """Amount per second over the whole stretch."""
        return float(self.amount.sum() / self.wall_s.sum())

    @property
    def influence(self) -> Column:
        """What each row adds to the log of the rate, to first order; sums to 0."""
        shares: Column = self.amount / self.amount.sum() - self.wall_s / self.wall_s.sum()
        return shares


@dataclass(frozen=True)
class Ratio:
    """Rate of the second side over the first's, and its 95 % interval (None where there are too few rows)."""

    value: float
    low: float | None
    high: float | None


def ratio(pairs: Sequence[tuple[Stretch, Stretch]]) -> Ratio:
    """The ratio of the two sides' rates, each the sum of all work over the sum of all seconds.

    Args:
        pairs: at least one (baseline, candidate), each pair having run next to each other; every stretch did some work
            and took time.
    """
    rates = [
        sum(float(one.amount.sum()) for one in side) / sum(float(one.wall_s.sum()) for one in side)
        for side in zip(*pairs, strict=True)
    ]
    value = rates[1] / rates[0]
    if any(len(one.wall_s) < FEWEST_ROWS for pair in pairs for one in pair):
        return Ratio(value, None, None)
    logs = np.log([candidate.rate / baseline.rate for baseline, candidate in pairs])
    expected = float(np.mean([_within(*pair) for pair in pairs])) + RUN_TO_RUN**2
    freedom = PRIOR_PAIRS + len(pairs) - 1
    spread = (PRIOR_PAIRS * expected + float(((logs - logs.mean()) ** 2).sum())) / freedom
    reach = t_quantile(freedom) * math.sqrt(spread / len(pairs))
    return Ratio(value, value * math.exp(-reach), value * math.exp(reach))


def _within(baseline: Stretch, candidate: Stretch) -> float:
    """Variance of a pair's log ratio by the tapered block bootstrap, over blocks that both runs share."""
    a, b = baseline.influence, candidate.influence
    return _variance_of_sum(b - a) if len(a) == len(b) else _variance_of_sum(a) + _variance_of_sum(b)


def _variance_of_sum(values: Column) -> float:
    """Variance of the sum of a series (shape (rows,), mean 0) whose neighbours are alike."""
    n = len(values)
    length = max(2, min(round(BLOCK_SHARE * n), LONGEST_BLOCK))
    taper = np.sin(np.pi * (np.arange(length) + 0.5) / length)
    blocks = np.convolve(values - values.mean(), taper / np.sqrt((taper**2).sum()), mode="valid")
    # Deviations from the run's own mean are too small, the more so the longer the blocks are.
    return float(n * (blocks**2).mean() / (1.0 - taper.sum() ** 2 / (taper**2).sum() / n))


def t_quantile(freedom: float) -> float:
    """97.5 % quantile of Student's t (Cornish-Fisher expansion; within 0.3 % from 4 degrees of freedom on)."""
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
