"""What a look of the live view takes from the loop: the loop while it looks, beside the loop just before and after.

All of it is one run of one process: on a busy machine two runs differ by far more than the view takes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
WALL: Final = 0
CPU: Final = 1
AROUND_S: Final = 0.4
"""So long before a look, and after it, the loop is what it would have been without."""


def taken(slices: Numbers, looks: Numbers, clock: int) -> Numbers:
    """Seconds that each look took from the loop; none of one without a loop on both sides of it.

    Args:
        slices: shape (n, 3), ascending: moment, CPU seconds of the loop's thread, steps so far.
        looks: shape (m, 2), ascending: begin and end.
        clock: the column of `slices` that is compared, WALL or CPU.
    """
    moments, spent, steps = slices[:, 0], slices[:, clock], slices[:, 2]
    found = []
    for begin, end in looks:
        at = np.searchsorted(moments, [begin - AROUND_S, begin, end, end + AROUND_S]) - [0, 1, 0, 1]
        if at[0] < 1 or at[3] >= len(moments) - 1 or not at[0] < at[1] <= at[2] < at[3]:
            continue
        (s0, s1, s2, s3), (n0, n1, n2, n3) = spent[at], steps[at]
        usual = ((s1 - s0) + (s3 - s2)) / ((n1 - n0) + (n3 - n2))
        found.append((s2 - s1) - (n2 - n1) * usual)
    return np.array(found)


def nobodys(looks: Numbers) -> Numbers:
    """Looks that nobody took, half-way between the true ones and as long as these: what chance alone gives."""
    lengths, gaps = np.diff(looks[:-1])[:, 0], looks[1:, 0] - looks[:-1, 1]
    begin = looks[:-1, 1] + (gaps - lengths) / 2
    return np.stack([begin, begin + lengths], axis=1)[gaps > lengths + 2 * AROUND_S]


def mean_within(values: Numbers) -> tuple[float, float, float]:
    """The mean and the ends of its interval (95 %, by drawing from the values again and again)."""
    draws = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)
