"""The table of a long run is bounded, and a step costs the same at its end as at its begin."""

from __future__ import annotations

import time
from typing import Final

from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording.steps import STEP_COLUMNS
from tests.unit.capture.test_step_table import row

MOST_US: Final = 40.0
"""1 to 3 us on an idle core. A table that copied its rows at every step would take milliseconds: they are 30 MB."""


def test_a_long_run_is_bounded_and_its_cost_constant() -> None:
    table, one = StepTable(), row(wall_s=1)
    begin = time.process_time()
    for _ in range(300_000):
        table.append(one)
    per_step_us = (time.process_time() - begin) / 0.3
    table.finish()
    steps = table.steps()
    assert steps.wall_s.sum() == 300_000
    assert table.rows <= 1 << 17
    assert steps.wall_s.nbytes * len(STEP_COLUMNS) < 30e6
    assert per_step_us < MOST_US
