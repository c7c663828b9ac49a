"""What of `tests/unit/capture/test_steptable.py` runs real loops or takes more than a second."""

from __future__ import annotations

import time

from gpu_doctor.recording import STEP_COLUMNS
from gpu_doctor.steptable import StepTable
from tests.support.steptable_parts import row


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
    assert per_step_us < 40
