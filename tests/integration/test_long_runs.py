"""Long runs stay small and true: bounded rows, losses and readings, exact sums, early and late parts both there.

Sizes are scaled down but in the slow tests, which hold the aims themselves; `benchmarks/long_runs.py` says what it all
costs. What takes long is asked in CPU seconds, three times the aim: the machine that runs it may be busy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import long_runs
from gpu_doctor import formatting
from gpu_doctor.capture import kept_losses, recorder
from gpu_doctor.capture.readings import MOST_READINGS, Readings
from gpu_doctor.capture.step_table import CAPACITY, StepTable
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Metric, load
from gpu_doctor.recording.steps import STEP_COLUMNS
from gpu_doctor.report import as_text
from gpu_doctor.report.sections import Reported
from tests.support.repository import ROOT


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 512 rows and 256 losses, so that some ten thousand steps are a long run."""
    monkeypatch.setattr(recorder, "StepTable", lambda: StepTable(capacity=512))
    monkeypatch.setattr(kept_losses, "DENSE_LOSSES", 64)
    monkeypatch.setattr(kept_losses, "MOST_LOSSES", 256)


@pytest.mark.usefixtures("small_table")
def test_a_run_that_is_thinned_many_times_keeps_exact_sums_and_both_its_ends() -> None:
    done = long_runs.long_run(40_000, 2_000)
    assert done.off == []
    assert done.stride >= 64
    assert done.rows <= 512
    assert done.folded == 42_000


@pytest.mark.usefixtures("small_table")
def test_steps_whose_rows_are_repeated_are_the_same_run() -> None:
    told, leapt = (long_runs.long_run(40_000, 2_000, leaping=leaping) for leaping in (False, True))
    assert leapt.off == []
    assert leapt.folded < 6_000
    assert told.recording is not None and leapt.recording is not None
    assert (leapt.rows, leapt.stride) == (told.rows, told.stride)
    for name in STEP_COLUMNS:
        if name != "cpu_s":  # real seconds of this process
            ours, theirs = getattr(leapt.recording.steps, name), getattr(told.recording.steps, name)
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.slow
def test_ten_million_steps_take_no_more_memory_than_the_aim() -> None:
    """In a process of its own: Python, numpy and all that reading a recording needs, but torch, which takes 190 MB."""
    code = (
        "import json\n"
        "from benchmarks import long_runs\n"
        "done = long_runs.long_run(10_000_000, 2_000, leaping=True)\n"
        "print(json.dumps([done.off, done.folded, done.rows, long_runs.most_resident_mb()]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    off, folded, rows, most_mb = json.loads(ran.stdout)
    if np.isnan(most_mb):
        pytest.skip("the system does not say how much memory was resident")
    assert off == []
    assert folded > 300_000
    assert rows > 60_000
    assert 30 < most_mb <= long_runs.MEMORY_MB


def test_a_full_table_is_saved_loaded_and_diagnosed_in_the_time_aimed_at(tmp_path: Path) -> None:
    recording = long_runs.single_rows(CAPACITY)
    begin = time.process_time()
    again = load(recording.save(tmp_path / "long.npz"))
    diagnosis = diagnose(again)
    took_s = time.process_time() - begin
    assert diagnosis.bottleneck == "input"
    assert took_s < 3 * long_runs.READ_S


@pytest.mark.usefixtures("small_table")
def test_the_losses_of_a_long_run_are_bounded_and_reach_from_its_begin_to_its_end() -> None:
    done = long_runs.long_run(40_000, 2_000)
    assert done.recording is not None
    at = done.recording.losses.step
    assert len(at) <= 256
    assert at[:64].tolist() == list(range(64)), "the first are kept one by one"
    gaps = np.diff(at[64:])
    assert (gaps > 0).all()
    assert at[-1] > 40_000
    assert gaps.max() <= 2 * np.median(gaps), "the later ones lie evenly"


def test_the_sums_that_are_not_exact_are_named() -> None:
    done = long_runs.long_run(400, 20)
    assert done.recording is not None
    assert done.off == []
    whole = done.recording.steps
    assert [one.partition(":")[0] for one in long_runs.inexact(whole.rows(0, len(whole) - 1), 400, 20)][:2] == [
        "count",
        "samples",
    ]
    late = whole.rows(0)
    late.data_wait_s[300:320] = 0.0
    said = " ".join(long_runs.inexact(late, 400, 20))
    assert "data_wait_s" in said
    assert "late rows" in said


def test_readings_are_bounded_and_their_mean_is_that_of_the_whole_run() -> None:
    readings, n = Readings(Metric("cpu_util_pct", "%", "CPU", "utilization")), 5 * MOST_READINGS + 3
    for i in range(n):
        readings.add(i * 0.5, 100.0 if i < n / 5 else 50.0)  # the first fifth must not fade in the mean
    readings.finish()
    series = readings.series()
    assert MOST_READINGS / 2 < len(series.values) <= MOST_READINGS
    assert series.values.mean() == pytest.approx(60.0, abs=0.05)
    apart = np.diff(series.times_s)
    assert apart[:-1].min() == apart[:-1].max() == 0.5 * readings.stride, "evenly over the run"
    assert series.times_s[0] < 5.0
    assert series.times_s[-1] > (n - 8) * 0.5


def test_many_rows_are_saved_loaded_and_diagnosed_as_they_were(tmp_path: Path) -> None:
    recording = long_runs.single_rows(200_000)
    again = load(recording.save(tmp_path / "long.npz"))
    for name in STEP_COLUMNS:
        np.testing.assert_array_equal(getattr(again.steps, name), getattr(recording.steps, name))
    assert measure(again).samples_per_s == measure(recording).samples_per_s
    diagnosis = diagnose(again)
    assert diagnosis.bottleneck == "input"
    assert formatting.count(200_000, "step") in as_text.text(Reported(diagnosis, (again,)))
