"""What of `tests/unit/report/test_report.py` runs real loops or takes more than a second."""

from __future__ import annotations

import time

from gpu_doctor import report
from tests.support.page_parts import diagnosed
from tests.support.report_parts import recording


def test_a_million_steps_are_quick_and_small() -> None:
    one = recording(n=1_000_000)
    diagnosis = diagnosed(one)
    begin = time.perf_counter()
    html = report.html(diagnosis, (one,))
    assert time.perf_counter() - begin < 3.0
    assert len(html) < 120_000
