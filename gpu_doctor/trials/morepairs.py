"""When a comparison of runs that take turns is clear, and when another pair of them is worth its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gpu_doctor.recording import Recording
from gpu_doctor.trials.compare.effect import BROKEN, compare, side_of
from gpu_doctor.trials.compare.pagecache import is_warming

BELIEVED: Final = 1.10
"""Smaller gains and losses are claimed only after a third pair: two pairs agree by chance too often."""
HALF: Final = 0.5
"""A claim is final once the interval leaves so much of the difference (of its logarithm): of equal sides on wandering
clocks 6 % were called faster or slower without, 2 % with it, for one pair more at 1.15x (benchmarks/effect.py)."""
MOST_PAIRS: Final = 28
"""Pairs of runs after which a comparison that is not clear is left inconclusive, if the trial's seconds last so long.
On a busy machine six left 54 % of equal sides and of true 1.15x open, 28 leave 1 %, for 11 and 15 pairs on the mean; on
quiet machines two or three are enough (benchmarks/effect.py)."""
MOST_UNREAD: Final = 6
"""Pairs of runs without an interval, each too short for one, after which no other is tried."""
ONE_PAIR: Final = 1.5
"""An interval beyond this is clear after one pair: more than a machine's mood explains."""


def needs_more(baseline: Recording | Sequence[Recording], candidate: Recording | Sequence[Recording]) -> bool:
    """Whether another pair of runs is worth its time.

    A second pair always is, unless the first is beyond doubt. A third is before a small gain or loss is believed; more
    while the verdict is open, or a gain or loss is claimed of which the interval leaves little, up to MOST_PAIRS. None
    is after a failure, a refusal, an interrupt or a Stop. One pair that read from the storage, or measured too little,
    is never beyond doubt, and one that is not judged is made up for by another.
    """
    effect = compare(baseline, candidate)
    sides = side_of(baseline), side_of(candidate)
    made = min(map(len, sides))
    low, high, pairs = effect.low, effect.high, effect.pairs
    if effect.outcome in BROKEN or made >= MOST_PAIRS:
        return False
    if low is None or high is None or effect.speedup is None or not pairs:
        return made < MOST_UNREAD
    doubted = low < ONE_PAIR and high > 1 / ONE_PAIR
    if effect.verdict == "inconclusive":
        return True
    if pairs < 2:  # where losses differ, another baseline tells whether that comes by itself
        return doubted or is_warming(*sides) or effect.loss_verdict == "different"
    if effect.verdict == "no-difference":
        return False
    end = low if effect.verdict == "faster" else high
    small = 1 / BELIEVED < effect.speedup < BELIEVED
    return (small and pairs < 3) or (doubted and abs(math.log(end)) < HALF * abs(math.log(effect.speedup)))
