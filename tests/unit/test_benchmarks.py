"""The arithmetic of the benchmarks; what they measure is for people, on a quiet machine, not for a test."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import overhead
from benchmarks.contenders import MLP, OFF
from benchmarks.panel.looks import CPU, WALL, mean_within, nobodys, taken
from benchmarks.panel.row import Row, table


def test_a_turn_is_compared_with_the_bare_loop_of_the_same_turn() -> None:
    bare, watched = [(100.0, 50.0), (200.0, 60.0), (300.0, 70.0)], [(110.0, 51.0), (230.0, 62.0), (320.0, 73.0)]
    row = overhead.Row(MLP, OFF, bare_us=bare, us=watched)
    assert row.over(0) == [10.0, 20.0, 30.0]
    assert row.over(1) == [1.0, 2.0, 3.0]
    assert row.line().split()[-9:] == ["20.0", "10.0", "30.0", "1.100", "2.0", "1.0", "3.0", "1.033", "3"]


def test_a_row_of_the_panels_table_says_whether_its_aim_is_kept() -> None:
    rows = [Row("load", "a", 99.0, "ms", 100), Row("load", "b", float("nan"), "ms", 100), Row("load", "c", 7.0, "MB")]
    said = table(rows).splitlines()[1:]
    assert [line.split()[-1] for line in said] == ["kept", "missed", "MB"]
    assert [row.missed for row in rows] == [False, True, False], "what was not measured is not kept"


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
