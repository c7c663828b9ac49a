"""The live panel's thread tries again after a failure, ends, counts its cost, and never sends two pictures at once."""

from __future__ import annotations

import threading
import time

from gpu_doctor.report.panel import PanelInput
from tests.support.dashboard_parts import Bench
from tests.support.dashboard_parts import bench as bench


def test_a_run_after_a_failure_gets_another_chance(bench: Bench) -> None:
    bench.failing = RuntimeError("no room")
    bench.dashboard.push()
    bench.failing = None
    bench.dashboard.start()
    deadline = time.monotonic() + 5
    while not bench.messages and time.monotonic() < deadline:
        time.sleep(0.01)
    bench.dashboard.stop()
    assert bench.messages and not bench.dashboard.failure


def test_the_refresher_is_one_thread_of_ours_that_ends_and_counts_its_cost(bench: Bench) -> None:
    bench.dashboard.start()
    bench.dashboard.start()
    names = [thread.name for thread in threading.enumerate() if thread.name == "gpu_doctor-refresher"]
    assert len(names) == 1
    deadline = time.monotonic() + 5
    while bench.dashboard.cpu_s == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    bench.dashboard.stop()
    assert "gpu_doctor-refresher" not in {thread.name for thread in threading.enumerate()}
    assert 0 < bench.dashboard.cpu_s < 5


def test_two_pushers_never_interleave(bench: Bench) -> None:
    inside, most, release = 0, 0, threading.Event()

    def look() -> PanelInput:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        release.wait(5)
        inside -= 1
        return bench.input

    bench.dashboard._look = look
    other = threading.Thread(target=bench.dashboard.push)
    other.start()
    deadline = time.monotonic() + 5
    while not inside and time.monotonic() < deadline:
        time.sleep(0.001)
    bench.dashboard.push()
    release.set()
    other.join()
    assert most == 1 and len(bench.messages) == 1
