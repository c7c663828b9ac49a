"""Computes the ratio of two rates with an interval that is valid at any number of looks; pure numpy, nothing random.

Each pair of runs gives one number, the logarithm of the ratio of its rates. The interval of their weighted mean is a
confidence sequence for normal numbers of unknown variance (Lai 1976; Wang and Ramdas, Anytime-valid t-tests, 2024): it
holds at all numbers of pairs at once. Three things say how far a pair may be off.

- The steps of its runs, of which neighbours are alike: a tapered block bootstrap (Paparoditis and Politis 2001), whose
  variance has a closed form. Both runs share their blocks, so that a checkpoint in both of them cancels.
- The seconds of its runs. What steps bring falls with them, what varies from run to run does not; pairs have the
  inverse of the sum as their weight. The steps of a single pair do not set its weight: that would drop the stalls which
  a candidate removes.
- How far runs of one side lie apart in this trial. In turns A B B A B ..., the last run of a pair and the first of the
  next are neighbours of one side; their differences (von Neumann et al. 1941) and those of the pairs give the spread
  together, moderated by a prior (Smyth 2004), since two or three pairs are too few for that.

The documentation (How it works, Statistics) has the measured coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
"""Spread of log samples/s between two runs of the same code next to each other, beyond what blocks show, before a trial
has shown its own: the middle of the prior (measured on real loops by benchmarks/effect.py)."""
PRIOR_PAIRS: Final = 3.0
"""Weight of the prior, in pairs: the smallest that gives a single pair an interval. With 4, trials of three
times the usual spread left the truth out in 15 % instead of 9 %, and no answer came sooner."""
SAME_SIDE: Final = 0.5
"""A difference between runs of the same side counts as half a pair: it shares a run with the pair before and after."""
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
        """Returns each row's contribution to the log of the rate, to first order; sums to 0."""
        shares: Column = self.amount / self.amount.sum() - self.wall_s / self.wall_s.sum()
        return shares


@dataclass(frozen=True)
class PairLog:
    """Two runs that ran next to each other: the logs of their rates, and how far their difference may be off."""

    baseline: float
    """Log of the baseline's rate."""
    candidate: float
    variance: float | None
    """Variance of the difference, estimated from the steps; None if a run has too few rows."""
    seconds: float = 1.0
    """Measured: half the harmonic mean of both runs' seconds."""
    number: int = 0
    """Number of the pair in its trial, from 0; the baseline ran first in even pairs."""

    @classmethod
    def of(cls, baseline: Stretch, candidate: Stretch, number: int = 0) -> PairLog:
        """Builds the pair from two stretches with work and time above 0."""
        short = min(len(baseline.wall_s), len(candidate.wall_s)) < FEWEST_ROWS
        seconds = 1.0 / (1.0 / baseline.wall_s.sum() + 1.0 / candidate.wall_s.sum())
        variance = None if short else _within(baseline, candidate)
        return cls(math.log(baseline.rate), math.log(candidate.rate), variance, float(seconds), number)

    @property
    def log(self) -> float:
        """Returns the log of the candidate's rate over the baseline's."""
        return self.candidate - self.baseline

    def until(self, following: PairLog) -> float | None:
        """Returns the log of the next pair's first rate over this pair's last rate, both of one side.

        None if other pairs are between them.
        """
        if following.number != self.number + 1:
            return None
        if self.number % 2:
            return following.baseline - self.baseline
        return following.candidate - self.candidate


@dataclass(frozen=True)
class Ratio:
    """The ratio of the second side's rate to the first's, with its 95 % interval (None if there is too little data)."""

    value: float
    low: float | None
    high: float | None


def ratio(pairs: Sequence[PairLog]) -> Ratio:
    """Returns the weighted geometric mean of the pairs' ratios, and the interval of the confidence sequence.

    Args:
        pairs: at least one pair, in the order in which they ran; without the variance of every pair there is no
            interval.
    """
    logs = np.array([pair.log for pair in pairs])
    variances = [pair.variance for pair in pairs if pair.variance is not None]
    if len(variances) < len(pairs):
        return Ratio(math.exp(float(logs.mean())), None, None)
    expected = _expected(np.array(variances), np.array([pair.seconds for pair in pairs]))
    weights = 1.0 / expected
    mean = float((weights * logs).sum() / weights.sum())
    apart = [(pair.until(following), at) for at, (pair, following) in enumerate(pairwise(pairs))]
    same = [gap**2 / expected[at : at + 2].mean() for gap, at in apart if gap is not None]
    squares = PRIOR_PAIRS + float((weights * (logs - mean) ** 2).sum()) + SAME_SIDE * float(sum(same))
    belief = PRIOR_PAIRS + len(pairs) + SAME_SIDE * len(same)
    reach = math.sqrt(expected.mean()) * _reach(float(weights.sum() * expected.mean()), squares, belief)
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def _expected(variances: Column, seconds: Column) -> Column:
    """Returns the expected variance of each pair's log: that of the steps in its seconds, and that between runs."""
    return float((variances * seconds).mean()) / seconds + RUN_TO_RUN**2


def _reach(n: float, squares: float, belief: float) -> float:
    """Returns half the width of the interval on the log scale, in units of the expected spread of a pair.

    All means that the mixture's likelihood ratio does not rule out. With the mean normal around the one in question,
    its variance 1/MIXING of a pair's, and that variance inverse gamma by the prior, the ratio of the likelihoods is
    sqrt(left) * ((squares + x) / (squares + x * left)) ** (belief / 2), where x is n * (mean - mean in question)^2 and
    left is MIXING / (n + MIXING); it exceeds 1 / MISSES beyond this reach.

    Args:
        n: pairs of the expected spread that have the weight of all.
        squares: sum of the squared deviations so far, including the prior's.
        belief: number of deviations, including the prior's.
    """
    left = MIXING / (n + MIXING)
    bound = (1.0 / (left * MISSES**2)) ** (1.0 / belief)
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
