"""The arithmetic of measurements in turns: what a loop costs more in one way than in another, and how sizes scale."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Over:
    """What one way of running costs over another, as a share of the other: the median over turns, and quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.median:+.2f} % ({100 * self.low:+.2f} to {100 * self.high:+.2f} %)"


def over(bare_s: Sequence[float], other_s: Sequence[float]) -> Over:
    """Compares each turn's two sides with each other: what slows a machine for a while slows both.

    Args:
        bare_s, other_s: seconds of the same work, in the order of the turns.

    Raises:
        ValueError: if there are fewer than four turns, or a side lacks one.
    """
    if len(bare_s) != len(other_s) or len(bare_s) < 4:
        raise ValueError(f"{len(bare_s)} and {len(other_s)} turns: both sides need the same, at least 4.")
    shares = [other / bare - 1.0 for bare, other in zip(bare_s, other_s, strict=True)]
    low, median, high = statistics.quantiles(shares, n=4)
    return Over(median, low, high)


def scaled(now: int, took_s: float, wanted_s: float, least: int = 1) -> int:
    """How much of something takes `wanted_s`, where `now` takes `took_s` and time goes with it."""
    return max(round(now * wanted_s / took_s), least)
