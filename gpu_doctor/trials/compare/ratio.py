"""The ratio of two rates with an interval that stays valid however often it is looked at; pure numpy, nothing random.

Each pair of runs that took turns gives one number, the logarithm of the ratio of its rates. Their mean is the centre,
and the interval is made of the same numbers: a confidence sequence for the mean of normal numbers whose variance is
unknown (Lai 1976; Wang and Ramdas, Anytime-valid t-tests, 2024). It holds at all numbers of pairs at once, so a trial
may look after every pair and end when it likes what it sees. Two or three pairs are too few to estimate a variance:
their spread is moderated by a prior (moderated t, Smyth 2004), so many pairs' worth of the spread that is expected:

- inside a run, steps vary and neighbours are alike (bursts of a loader, stalls, drift). A bootstrap over blocks of
  consecutive steps sees that; this one lets its blocks fade in and out (tapered block bootstrap, Paparoditis and
  Politis 2001), so that it makes no difference whether a block holds two or three bursts. Its variance has a closed
  form, so nothing is drawn. Both runs of a pair share their blocks, because the same stretch of a run does the same
  work on both sides: a checkpoint every 20 steps is in both and cancels.
- between runs, the machine itself changes.

What holds exactly: of pairs whose spread is drawn from that prior, at most MISSES of the trials ever leave the truth
out. It is no promise for each single spread, and the prior's centre is the mean of what the blocks say so far.
Simulated trials with a look after each of 40 pairs left it out in 0.6 % with the spread expected, 2.5 % with half as
much more, 6 % with twice and 16 % with three times it; trials replayed from recorded loops in 0 to 6 %
(benchmarks/README.md).
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
"""How many pairs' worth of belief the expected spread has."""
MISSES: Final = 0.05
"""Part of the trials in which the interval may leave the truth out at any number of pairs."""
MIXING: Final = 0.1
"""Pairs' worth of the normal prior over which the sequence mixes. Any value is valid; this one is within a tenth of the
narrowest at 2 to 30 pairs."""


@dataclass(frozen=True)
class Stretch:
    """The measured rows of one run: seconds and amount of work (samples or steps), same length."""

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
class PairLog:
    """What one pair of runs says: the log of candidate over baseline, and the variance that its steps lead to expect.

    The variance is None where either run has too few rows to tell.
    """

    log: float
    variance: float | None

    @classmethod
    def of(cls, baseline: Stretch, candidate: Stretch) -> PairLog:
        """Of two stretches that did some work and took time."""
        short = min(len(baseline.wall_s), len(candidate.wall_s)) < FEWEST_ROWS
        return cls(math.log(candidate.rate / baseline.rate), None if short else _within(baseline, candidate))


@dataclass(frozen=True)
class Ratio:
    """Rate of the second side over the first's, and its 95 % interval (None where there is too little to tell)."""

    value: float
    low: float | None
    high: float | None


def ratio(pairs: Sequence[PairLog]) -> Ratio:
    """The ratio of the two sides' rates: the geometric mean of the pairs' ratios, and the sequence's interval.

    Args:
        pairs: at least one; where one of them has no variance there is no interval.
    """
    logs = np.array([one.log for one in pairs])
    known = [one.variance for one in pairs if one.variance is not None]
    value = math.exp(float(logs.mean()))
    if len(known) < len(pairs):
        return Ratio(value, None, None)
    expected = float(np.mean(known)) + RUN_TO_RUN**2
    squares = PRIOR_PAIRS * expected + float(((logs - logs.mean()) ** 2).sum())
    reach = _reach(len(pairs), squares)
    return Ratio(value, value * math.exp(-reach), value * math.exp(reach))


def _reach(n: int, squares: float) -> float:
    """Half the width of the interval on the log scale.

    All means that the mixture's likelihood ratio does not rule out. With the mean normal around the one in question,
    its variance 1/MIXING of a pair's, and that variance inverse gamma by the prior, the ratio of the likelihoods is
    sqrt(MIXING / (n + MIXING)) * ((Q + x) / (Q + x * left)) ** ((PRIOR_PAIRS + n) / 2), where Q is `squares`, x is
    n * (mean - mean in question)^2 and left is MIXING / (n + MIXING); it exceeds 1 / MISSES beyond this reach.
    """
    left = MIXING / (n + MIXING)
    bound = (1.0 / (left * MISSES**2)) ** (1.0 / (PRIOR_PAIRS + n))
    return math.sqrt((bound - 1.0) * squares / (n * (1.0 - bound * left)))


def _within(baseline: Stretch, candidate: Stretch) -> float:
    """Variance of a pair's log ratio by the tapered block bootstrap, over blocks that both runs share."""
    a, b = baseline.influence, candidate.influence
    return _variance_of_sum(b - a) if len(a) == len(b) else _variance_of_sum(a) + _variance_of_sum(b)


def _variance_of_sum(values: Column) -> float:
    """Variance of the sum of a series (FEWEST_ROWS at least, mean 0) whose neighbours are alike."""
    n = len(values)
    length = min(round(BLOCK_SHARE * n), LONGEST_BLOCK)
    taper = np.sin(np.pi * (np.arange(length) + 0.5) / length)
    blocks = np.convolve(values - values.mean(), taper / np.sqrt((taper**2).sum()), mode="valid")
    # Deviations from the run's own mean are too small, the more so the longer the blocks are.
    return float(n * (blocks**2).mean() / (1.0 - taper.sum() ** 2 / (taper**2).sum() / n))
