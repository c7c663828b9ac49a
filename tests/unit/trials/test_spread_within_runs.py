"""How far the log of a pair's ratio may be off, by what the steps of its runs say."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.trials.compare.ratio import PairLog, Stretch

APART = 1e-6


def run(rows: int, slow: int | None = None) -> Stretch:
    """Steps of a second, but for one that takes a millionth longer."""
    wall = np.ones(rows)
    if slow is not None:
        wall[slow] += APART
    return Stretch(wall, np.ones(rows))


@pytest.mark.parametrize("rows", [9, 48, 100])
@pytest.mark.parametrize("other", [0, 5])
def test_steps_that_vary_by_themselves_add_up_as_they_do_in_a_mean(rows: int, other: int) -> None:
    """The variance is a square of what the steps deviate by: for such steps its mean is the sum over single ones."""
    steady = run(rows + other)
    found = [PairLog.of(steady, run(rows, slow)).variance or 0.0 for slow in range(rows)]
    assert sum(found) * rows / APART**2 == pytest.approx(1.0, rel=1e-4)
