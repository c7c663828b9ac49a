"""The arithmetic of the benchmarks; what they measure is for people, on a quiet machine, not for a test."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import overhead
from benchmarks.contenders import MLP, OFF, Spent
from benchmarks.panel.looks import CPU, WALL, mean_within, nobodys, taken


def test_a_turn_is_compared_with_the_bare_loop_of_the_same_turn() -> None:
    nan = float("nan")
    bare = [Spent(wall * 1e-6, cpu * 1e-6, cpu * 1e-6, nan, nan) for wall, cpu in ((100, 50), (200, 60), (300, 70))]
    spent = [Spent(wall * 1e-6, cpu * 1e-6, cpu * 1e-6, 1e-6, nan) for wall, cpu in ((110, 51), (230, 62), (320, 73))]
    row = overhead.Row(MLP, OFF, bare, spent)
    assert row.over_us("wall_s") == pytest.approx([10.0, 20.0, 30.0])
    assert row.over_us("cpu_s") == pytest.approx([1.0, 2.0, 3.0])
    assert row.least_us("wall_s") == pytest.approx(10.0)
    assert row.line().split()[-12:] == [
        *("60.0", "2.0", "1.0", "3.0", "1.0", "2.0", "20.0", "1.0", "-", "0.50", "-", "3")
    ]


def test_what_a_look_takes_from_the_loop_is_told_beside_the_loop_around_it() -> None:
    moments = np.arange(0.0, 20.0, 0.002)
    looks = np.array([[at, at + 0.05] for at in (2.0, 7.0, 12.0, 17.0)])
    looked = np.zeros_like(moments, dtype=bool)
    for begin, end in looks:
        looked |= (moments >= begin) & (moments < end)
    rate = np.where(looked, 400.0, 500.0) * (1 + moments / 20)  # a fifth slower while it looks; the machine drifts
    slices = np.stack([moments, moments, np.cumsum(rate) * 0.002], axis=1)
    assert taken(slices, looks, WALL) == pytest.approx([0.01] * 4, rel=0.15)
    assert taken(slices, nobodys(looks), CPU) == pytest.approx([0.0] * 3, abs=5e-4)
    assert taken(slices, np.array([[0.1, 0.2], [19.9, 19.95]]), WALL).size == 0, "no loop on both sides"
    mean, low, high = mean_within(np.array([1.0, 2.0, 3.0]))
    assert (mean, low <= mean <= high) == (2.0, True)
