"""The clock says how long a phase is and the looks how it is divided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LineCost
from tests.support.recordings import Loop

LOSS = LineCost("<cell>", 3, "<module>", "loss = criterion(out, y)", "other", 0.1, before_backward=True)
METRIC = replace(LOSS, line=4, text="acc = accuracy(out, y)", share=0.3, outside_torch=True)
PLOT = replace(LOSS, line=6, text="plot(history)", before_backward=False)


def seen(*lines: LineCost, looks: int | None = 200, other: float = 2.0, loss: float = 8.0) -> Vitals:
    """Of steps of 20 ms: 8 between forward and backward, 2 elsewhere outside of the phases."""
    return measure(replace(Loop(other=other, loss=loss, lines=lines).recording(), looks=looks))


def share(vitals: Vitals, line: LineCost) -> float:
    return sum(one.share for one in vitals.lines if one.line == line.line)


def test_each_part_is_as_long_as_the_clock_says() -> None:
    vitals = seen(replace(LOSS, share=0.2), replace(PLOT, share=0.2), replace(PLOT, line=7, share=0.2))
    assert (vitals.loss_share, vitals.other_share) == (pytest.approx(0.4), pytest.approx(0.5))
    assert share(vitals, LOSS) == pytest.approx(0.4)
    assert share(vitals, PLOT) == pytest.approx(0.05)


def test_a_metric_before_the_backward_keeps_its_part_of_it() -> None:
    vitals = seen(LOSS, METRIC)
    assert vitals.loss_share == pytest.approx(0.4), "the clock's"
    assert share(vitals, METRIC) == pytest.approx(0.3)


def test_two_looks_divide_nothing() -> None:
    vitals = seen(LOSS, METRIC, replace(PLOT, share=0.02), looks=5)
    assert share(vitals, PLOT) == pytest.approx(0.02), "nor do they make a line longer"


def test_a_stall_that_came_once_makes_no_line_longer() -> None:
    stalled = Loop(other=2.0, lines=(replace(PLOT, share=0.1),)).recording()
    wall = stalled.steps.wall_s.copy()
    wall[50] += 0.5
    vitals = measure(replace(stalled, steps=replace(stalled.steps, wall_s=wall), looks=500))
    assert vitals.other_share is not None and vitals.other_share > 0.3
    assert share(vitals, PLOT) == pytest.approx(vitals.other_share - vitals.once_share, rel=0.05)


def test_a_worker_s_lines_are_left_as_they_are() -> None:
    inside = replace(PLOT, phase="data_wait", in_worker=True, share=0.9)
    assert share(seen(inside), PLOT) == pytest.approx(0.9)
