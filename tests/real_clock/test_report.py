"""A report of a million steps is quick to make and small."""

from __future__ import annotations

import time
from typing import Final

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.report import as_text
from tests.support.recordings import starved

MOST_S: Final = 0.85
"""0.25 s on an idle core; a line of Python for each step and column would add 1.2 s (0.12 s a column). The middle."""


def test_a_million_steps_are_quick_and_small() -> None:
    one = starved(steps=1_000_000)
    diagnosis = diagnose(one)
    begin = time.thread_time()  # of this thread only
    html = as_text.html(diagnosis, (one,))
    assert time.thread_time() - begin < MOST_S
    assert len(html) < 120_000
