"""What of `tests/unit/.../test_diagnosis.py` reads a real clock or runs real threads."""

from __future__ import annotations

import time

from gpu_doctor.diagnosis import diagnose
from tests.support.diagnosis_parts import CELL, costly


def test_ten_thousand_steps_are_judged_at_once() -> None:
    recording = costly(CELL)
    assert len(CELL.splitlines()) >= 100
    spent = []
    for _ in range(5):  # CPU seconds of this thread: what others compute meanwhile does not count
        begin = time.thread_time()
        diagnose(recording)
        spent.append(time.thread_time() - begin)
    assert min(spent) < 0.05  # 1 ms on an idle machine
