"""What nobody is to wait for takes little: each bound lies between an idle core's time and that of Python row by row.

CPU seconds of this thread count, and the least of several tries, as `timeit` advises: more is other programs' doing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording, Steps, form, load
from gpu_doctor.recording.steps import STEP_COLUMNS
from gpu_doctor.report import as_text
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.clock_bench import row
from tests.support.costly_cell import CELL, costly
from tests.support.recordings import starved

MANY = 1_000_000


def least_s(do: Callable[[], Any], tries: int = 3) -> float:
    """CPU seconds of this thread in the quickest try."""
    spent = []
    for _ in range(tries):
        begin = time.thread_time()
        do()
        spent.append(time.thread_time() - begin)
    return min(spent)


def test_a_million_rows_are_measured_at_once() -> None:
    """0.03 s on an idle core; a line of Python for each row and column would take 1.2 s (0.12 s a column)."""
    recording = starved(steps=MANY)
    assert least_s(lambda: measure(recording)) < 0.6


def test_a_diagnosis_of_a_long_cell_is_made_at_once() -> None:
    """1 ms; a line of Python for each step and each line of the cell would take 0.1 s."""
    recording = costly(CELL)
    assert len(CELL.splitlines()) >= 100 and len(recording.steps) == 10_000
    assert least_s(lambda: diagnose(recording), tries=5) < 0.05


def test_a_report_of_a_million_steps_is_quick_and_small() -> None:
    """0.25 s; a line of Python for each step and column would add 1.2 s."""
    one = starved(steps=MANY)
    told = Reported(diagnose(one), (one,))
    assert least_s(lambda: as_text.html(told), tries=1) < 0.85
    assert len(as_text.html(told)) < 120_000


def test_checking_the_form_of_a_recording_takes_little_beside_reading_it(tmp_path: Path) -> None:
    """0.003 of it; a line of Python for each step would make it a half for one column alone."""
    path = Recording(steps=Steps.of(wall_s=np.full(MANY, 0.1))).save(tmp_path / "run.npz")
    recording = load(path)
    checked_s = least_s(lambda: form.made(Recording, recording), tries=1)
    assert checked_s < 0.2 * least_s(lambda: load(path), tries=1)


def test_a_snapshot_is_taken_and_put_back_as_soon_as_three_copies_are_made() -> None:
    """All is copied once when it is taken and once when it is put back; the walk over it may cost a third copy."""
    space: dict[str, Any] = {
        "net": nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(25)]),
        "numbers": [float(i) for i in range(100_000)],
        "pairs": [(f"{i}.png", i) for i in range(100_000)],
    }
    begin = time.process_time()  # torch copies on threads of its own
    copied = copy.deepcopy(space)
    copy_s, begin = time.process_time() - begin, time.process_time()
    snapshot = Snapshot.take(space)
    snapshot.restore()
    took_s = time.process_time() - begin
    assert snapshot.bytes > 100_000_000 and copied["numbers"] == space["numbers"]
    assert took_s < 3.0 * copy_s


def test_the_table_of_a_long_run_is_bounded_and_a_step_costs_the_same_at_its_end() -> None:
    """1 to 3 us a step; a table that copied its rows at every step would take milliseconds: they are 30 MB."""
    table, one = StepTable(), row(wall_s=1)

    def run() -> None:
        for _ in range(300_000):
            table.append(one)

    assert least_s(run, tries=1) / 300_000 < 40e-6
    table.finish()
    steps = table.steps()
    assert steps.wall_s.sum() == 300_000
    assert table.rows <= 1 << 17
    assert steps.wall_s.nbytes * len(STEP_COLUMNS) < 30e6
