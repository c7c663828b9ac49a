"""The static result says what the live panel says: the same colours, the same titles, no line that was not measured."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose, warmup_rows
from gpu_doctor.recording import Replay, Series
from gpu_doctor.report import as_text
from gpu_doctor.report.panel import state
from gpu_doctor.report.plot_data import INK, PLOTS, Layer, in_order
from gpu_doctor.report.plots import plots
from gpu_doctor.report.sections import Reported
from gpu_doctor.svg import GREY
from gpu_doctor.trials import knobs
from tests.support.html_page import pictures
from tests.support.panel_parts import replaced, shown
from tests.support.recordings import CPU, starved


def test_the_bar_beside_the_verdict_has_one_colour() -> None:
    one = starved()
    waits = diagnose(one)
    unfused = replace(waits, bottleneck="compute", findings=(replace(waits.findings[0], rule="unfused-optimizer"),))
    for diagnosis in (waits, unfused, replace(waits, bottleneck="compute", findings=())):
        live = state(shown(one, diagnosis=diagnosis), knobs.KNOBS)["verdict"]["accent"]
        assert f"border-left:4px solid {live}" in as_text.html(Reported(diagnosis, (one,)))


def test_both_draw_the_same_lines_under_the_same_names() -> None:
    one = starved(gpu=True)
    layer = Layer(Replay(one))
    layer.read()
    live = in_order(layer.lines.values())
    static = plots(one)
    assert {"GPU", "CPU", "process", "step", "wait", "hidden wait"} == {line.label for line in live}
    assert re.findall(r"> ([^<>]+) <b", static) == [line.label for line in live]
    drawn = [picture for picture in pictures(static) if "<text" in picture]
    for plot, picture in zip(PLOTS, drawn, strict=True):
        colours = [GREY if line.colour == INK else line.colour for line in live if line.plot == plot]
        assert re.findall(r"stroke='(#\w+)'[^>]*linejoin", picture) == colours


def test_figures_are_of_all_readings_not_of_the_points_that_are_drawn() -> None:
    """Thinning keeps the lowest and the highest of each stretch, whose mean is another."""
    one = starved()
    values = np.where(np.arange(50_000) % 100, 10.0, 90.0)
    many = replace(one, series=(Series(CPU, np.linspace(0.0, one.duration_s, len(values)), values),))
    assert "mean 11 %" in plots(many).replace("\u202f", " ")


def test_without_a_gpu_the_plot_is_called_the_cpus() -> None:
    assert ">CPU utilization %<" in plots(starved())
    assert ">utilization %<" in plots(starved(gpu=True))


def test_a_loop_without_a_loader_has_no_line_of_waiting() -> None:
    one = starved()
    by_hand = replace(one, steps=replaced(one.steps, data_wait_s=np.zeros(len(one.steps))))
    assert "> wait <" in plots(one) and "> wait <" not in plots(by_hand)


def test_a_run_without_steps_is_no_factor_of_itself() -> None:
    one = starved(steps=1)
    empty = replace(one, steps=one.steps.rows(0, 0), fetches=())
    row = state(shown(empty, diagnosis=diagnose(empty)), knobs.KNOBS)["table"]["rows"][0]
    assert [cell["text"] for cell in row[2:4]] == ["-", "-"]


def test_the_latency_is_per_batch_and_without_evaluation_in_both() -> None:
    one = starved()
    accumulated = replaced(
        one.steps,
        batches=np.full(len(one.steps), 4.0),
        evaluation_s=np.where(np.arange(len(one.steps)) % 10, 0.0, 1e-3),
    )
    run = replace(one, steps=accumulated)
    layer = Layer(Replay(run))
    layer.read()
    live = layer.tails["step"].y
    warm = warmup_rows(accumulated)
    assert live[warm:] == pytest.approx(1e3 * accumulated.training_s[warm:] / 4.0)
    assert f"step mean {live[warm:].mean():.2f} ms" in plots(run)
