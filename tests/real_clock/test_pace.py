"""Reading the machine's pace takes next to nothing of the time that it watches."""

from __future__ import annotations

import time

from gpu_doctor.machine import pace as probe


def test_reading_the_pace_costs_next_to_nothing() -> None:
    begin = time.thread_time()
    for _ in range(50):
        probe.round_ns()
    assert (time.thread_time() - begin) / 50 < 1e-3  # twice a second: 0.2 % of a core on the slowest machine
