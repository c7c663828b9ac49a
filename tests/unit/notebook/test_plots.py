"""What is drawn of a run: thinning, increments, marks, the lines of a machine, and the figures as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpu_doctor.notebook import plots
from gpu_doctor.recording import Metric, Replay, Steps
from gpu_doctor.report.plot_data import MOST_MARKS, Layer, Points, expected, line_of
from tests.support.panel_parts import Script, news, replaced
from tests.support.recordings import starved


def test_a_tail_sends_increments_and_stays_bounded() -> None:
    tail, page = Points(most=400), np.empty(0)
    replacements = 0
    for push in range(2000):
        x = push * 0.5 + np.linspace(0.0, 0.49, 10)
        tail.add(x, np.full(10, float(push)))
        whole, new, _ = tail.take()
        replacements += whole
        page = new if whole else np.concatenate([page, new])
        assert len(page) == len(tail.x) <= 400
    assert page[-1] == pytest.approx(2000 * 0.5, abs=1.0)
    assert page[0] < 50
    assert replacements < 40
    assert len(tail.take()[1]) == 0
    assert len(tail.take(everything=True)[1]) == len(tail.x)


def test_a_line_is_drawn_in_its_unit_and_only_if_its_group_is() -> None:
    memory = line_of(Metric("torch_allocated_bytes", "bytes", "allocated by torch", "memory", 1), several_gpus=True)
    assert memory is not None
    assert memory.scale == pytest.approx(2**-30)
    assert memory.label == "allocated 1" and memory.key == "torch_allocated_bytes@1"
    assert line_of(Metric("gpu_power_w", "W", "power", "detail", 0)) is None
    unknown = line_of(Metric("npu_util_pct", "%", "NPU (vendor), busy", "utilization"))
    assert unknown is not None and unknown.label == "NPU"


def test_without_a_gpu_there_is_no_gpu_line_and_the_title_says_cpu() -> None:
    keys = {line.key for line in expected(())}
    assert keys == {"step", "wait", "cpu_util_pct", "process_rss_bytes", "workers_rss_bytes"}
    titles = [plot["title"] for plot in plots.document(expected(()))["plots"]]
    assert titles == ["CPU utilization", "memory", "loader latency"]
    assert plots.document(expected((0,)))["plots"][0]["title"] == "utilization"
    assert {"gpu_util_pct@0", "gpu_util_pct@1"} <= {line.key for line in expected((0, 1))}


def test_the_figures_are_plain_json_with_the_ids_that_are_named() -> None:
    made = plots.document(expected((0,)))
    text = json.dumps(made["doc"])
    ids = [made["x"]]
    for plot in made["plots"]:
        ids += [plot["figure"], plot["y"], plot["cursor"], *plot["marks"].values()]
        for line in plot["lines"]:
            for layer in ("base", "trial"):
                ids += [line[layer]["source"], *line[layer]["glyphs"]]
    assert len(ids) == len(set(ids))
    assert all(f'"id": "{one}"' in text for one in ids)
    assert plots.document(expected((0,))) is made, "figures of the same lines are made once per process"


def test_a_layer_reads_a_replay_as_it_moves_on() -> None:
    recording = starved(steps=100)
    feed = Replay(recording, 1.0)
    layer = Layer(feed)
    layer.read()
    first = len(layer.tails["step"].x)
    assert 20 <= first <= 25
    feed.until_s = None
    layer.read()
    assert len(layer.tails["step"].x) == 100
    assert layer.tails["wait"].y == pytest.approx(30.0)
    assert layer.tails["step"].y == pytest.approx(40.0)
    assert layer.tails["process_rss_bytes"].y == pytest.approx(2.0)
    assert "hidden" not in layer.lines, "on a CPU every wait is exposed"
    assert "workers_rss_bytes" not in layer.lines, "there never was a worker"


def test_evaluation_is_not_drawn_as_latency_but_marked() -> None:
    steps = starved(steps=40).steps
    evaluation = np.zeros(40)
    evaluation[20] = 3.0
    steps = replaced(steps, evaluation_s=evaluation, wall_s=steps.wall_s + evaluation, epoch=np.repeat([0.0, 1.0], 20))
    layer = Layer(Script(news(steps, 40)))
    layer.read()
    assert layer.tails["step"].y.max() == pytest.approx(40.0)
    assert layer.marks.epochs == (pytest.approx(steps.start_s[20]),)
    assert layer.marks.evaluations == (pytest.approx(steps.start_s[20]),)


def test_marks_stay_few() -> None:
    steps = starved(steps=1000).steps
    layer = Layer(Script(news(replaced(steps, epoch=np.arange(1000.0)), 1000)))
    layer.read()
    assert 15 < len(layer.marks.epochs) <= MOST_MARKS
    assert len(json.dumps(layer.marks.epochs)) < 10 * MOST_MARKS, "each message has all of them"


def test_rows_wait_for_the_clock_of_the_gpu() -> None:
    steps = starved(gpu=True, steps=50).steps
    clocked = np.repeat([1.0, 0.0], [40, 10])
    gap = np.where(clocked > 0, 0.02, np.nan)
    layer = Layer(Script(news(replaced(steps, device_steps=clocked, gpu_gap_s=gap), 50)))
    layer.read()
    assert len(layer.tails["step"].x) == 40
    assert layer._cursor.rows == 40
    assert layer.tails["hidden"].y == pytest.approx(10.0), "30 ms of wait, 20 ms of them exposed"


def test_a_thinned_run_is_drawn_anew() -> None:
    steps = starved(steps=50).steps
    merged = Steps.of(wall_s=np.full(25, 0.08), count=np.full(25, 2.0), data_wait_s=np.full(25, 0.06))
    layer = Layer(Script(news(steps, 50), news(merged, 25, reset=True, generation=1), news(merged.rows(0, 0), 0, True)))
    layer.read()
    layer.tails["step"].take()
    layer.read()
    whole, x, y = layer.tails["step"].take()
    assert whole and len(x) == 25
    assert y == pytest.approx(40.0), "a row of two steps is drawn as the time of one"
    layer.read()
    assert [len(layer.tails[key].x) for key in layer.lines] == [0, 0], "a reset without rows leaves empty lines"


def test_axes_end_above_what_is_drawn() -> None:
    recording = starved(steps=200)
    wall = recording.steps.wall_s.copy()
    wall[0] = 8.0
    layer = Layer(Script(news(replaced(recording.steps, wall_s=wall), 200)))
    assert layer.top("latency") is None
    layer.read()
    top = layer.top("latency")
    assert top is not None and 40.0 < top < 100.0, "the first step does not flatten all others"
