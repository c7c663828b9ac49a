"""The clock says how long a phase is and the looks how it is divided; what trains nothing is no loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LineCost
from tests.support.recordings import Loop

LOSS = LineCost("<cell>", 3, "<module>", "loss = criterion(out, y)", "other", 0.1, before_backward=True)
METRIC = replace(LOSS, line=4, text="acc = accuracy(out, y)", share=0.3, beside="step")
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


def test_a_metric_before_the_backward_is_no_loss() -> None:
    vitals = seen(LOSS, METRIC)
    assert vitals.loss_share == pytest.approx(0.1)
    assert share(vitals, METRIC) == pytest.approx(0.3)
    assert [one.before_backward for one in vitals.lines] == [False, True]
    found = diagnose(replace(Loop(other=2.0, loss=8.0, lines=(LOSS, METRIC)).recording(), looks=200))
    assert found.bottleneck == "host"
    assert [(one.rule, round(one.cost_share or 0.0, 2)) for one in found.findings] == [("slow-python", 0.4)]


def test_two_looks_divide_nothing() -> None:
    vitals = seen(LOSS, METRIC, replace(PLOT, share=0.02), looks=5)
    assert vitals.loss_share == pytest.approx(0.4)
    assert share(vitals, PLOT) == pytest.approx(0.02), "nor do they make a line longer"
    assert seen(LOSS, METRIC, looks=None).loss_share == pytest.approx(0.1), "nobody says how many there were"


def test_a_metric_that_holds_the_lock_is_no_loss_though_one_look_in_thirty_found_it() -> None:
    """Of a busy machine: 9 of 34 looks were due where 1 fell."""
    vitals = seen(replace(METRIC, share=0.03), looks=34, other=0.0, loss=5.0)
    assert vitals.loss_share == pytest.approx(0.0)
    found = diagnose(replace(Loop(other=0.0, loss=5.0, lines=(replace(METRIC, share=0.03),)).recording(), looks=34))
    assert (found.bottleneck, [one.rule for one in found.findings]) == ("host", ["slow-python"])
    of_loss = seen(replace(LOSS, share=0.03), looks=34, other=0.0, loss=5.0)
    assert of_loss.loss_share == pytest.approx(1 / 3), "a look that fell on the loss itself leaves it the loss"


def test_what_no_backward_followed_is_taken_for_the_rest() -> None:
    """Looks cannot know whether a backward will come; the clock does."""
    vitals = seen(replace(LOSS, share=0.4), loss=0.5, other=8.0)
    late = sum(one.share for one in vitals.lines if not one.before_backward)
    assert late == pytest.approx(vitals.other_share - (vitals.loss_share or 0.0))  # type: ignore[operator]
    assert sum(one.share for one in vitals.lines) == pytest.approx(vitals.other_share)


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
