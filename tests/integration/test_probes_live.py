"""The probes of the host tell what this process and its children really use."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

import psutil
import pytest

from gpu_doctor.machine import host, processes
from gpu_doctor.machine.probe import ProbeScope
from tests.support.probing import MIB, values
from tests.support.probing import no_visible_devices as no_visible_devices

TICK_S: Final = 0.01
"""The kernel counts the CPU seconds of children in these; those that other tests left may have used one."""
HALF: Final = 0.5
"""Pages or kB in the place of bytes would be a thousand times off: any bound between tells."""


def told_within(told_pct: float, begins: list[tuple[float, float]], ends: list[tuple[float, float]]) -> bool:
    """Whether a share lies between what was used inside of two readings and what was used around them.

    Args:
        begins: seconds and CPU seconds of this process before and after the first reading.
        ends: those before and after the second one.
    """
    (first_s, first_cpu), (begin_s, begin_cpu) = begins
    (end_s, end_cpu), (last_s, last_cpu) = ends
    inside, around = (end_cpu - begin_cpu) / (last_s - first_s), (last_cpu - first_cpu + TICK_S) / (end_s - begin_s)
    return 100 * inside <= told_pct * host.usable_cores() <= 100 * around


def test_the_host_tells_shares_from_the_second_reading_on() -> None:
    notes: list[str] = []
    with host.opened(ProbeScope(notes.append)) as read:
        assert read is not None
        marks, readings = [now()], []
        for act in (lambda: None, spin, lambda: time.sleep(0.2)):
            act()
            marks.append(now())
            readings.append(values(read(), None))
            marks.append(now())
    first, spun, slept = readings
    resident = psutil.Process().memory_info().rss
    assert "process_cpu_pct" not in first
    assert told_within(spun["process_cpu_pct"], marks[1:3], marks[3:5])
    assert told_within(slept["process_cpu_pct"], marks[3:5], marks[5:7])
    assert slept["process_cpu_pct"] < HALF * spun["process_cpu_pct"]  # which a share of all time since the begin is not
    assert 0 <= spun["cpu_util_pct"] <= 100
    assert slept["process_rss_bytes"] == pytest.approx(resident, rel=HALF)
    assert 0 < spun["host_memory_available_bytes"] <= spun["host_memory_total_bytes"]
    if sys.platform == "linux":
        assert 0 < spun["process_held_bytes"] <= spun["process_rss_bytes"] + spun["process_swapped_bytes"] + MIB
        assert "swap_in_bytes_per_s" not in first
    assert notes == []


def now() -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    return time.perf_counter(), time.process_time()


def spin() -> None:
    """Computes for 0.3 s."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.3:
        pass


def spun(child: subprocess.Popen[bytes], cpu_s: float) -> None:
    """Returns when a child has used so many CPU seconds more, however busy the machine is."""
    process = psutil.Process(child.pid)
    end_s = sum(process.cpu_times()[:2]) + cpu_s
    while sum(process.cpu_times()[:2]) < end_s:
        time.sleep(0.01)


def test_children_are_counted_and_their_cpu_goes_on_after_they_end() -> None:
    tree, spins_s, begin_s = host._Tree(time.perf_counter), 0.2, time.perf_counter()
    before = tree.read()["workers_rss_bytes"] or 0.0  # other tests of the run may have left some
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        spun(child, spins_s)
        during, middle_s = tree.read(), time.perf_counter()
        spun(child, spins_s)
        child.kill()
    after, end_s = tree.read(), time.perf_counter()
    assert (during["workers_rss_bytes"] or 0.0) > before + MIB
    for told, took_s in ((during, middle_s - begin_s), (after, end_s - middle_s + TICK_S)):
        assert (told["process_cpu_pct"] or 0.0) / 100 * host.usable_cores() * took_s >= spins_s - TICK_S
    assert (after["workers_rss_bytes"] or 0.0) < before + MIB


def test_a_child_of_half_a_second_is_ours_in_every_reading() -> None:
    found = processes.Children(time.perf_counter)
    before = {one.pid for one in found()}
    with subprocess.Popen(["sh", "-c", "sleep 20 & wait"], stdout=subprocess.DEVNULL) as child:
        try:
            deadline = time.monotonic() + 10
            while len(started := {one.pid for one in found()} - before) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            walked = {one.pid for one in psutil.Process().children(recursive=True)} - before
        finally:
            for one in psutil.Process(child.pid).children():
                one.kill()
    assert child.pid in started and started == walked
    assert {one.pid for one in found()} <= before
