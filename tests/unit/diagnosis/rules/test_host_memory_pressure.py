"""host-memory-pressure: hardly anything is left, or the process lies in swap."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import World
from tests.support.found import asked, surely
from tests.support.recordings import Loop, read, with_more

RULE = "host-memory-pressure"
GIB = float(1 << 30)
LOOP = Loop(wait=1.0, workers=8)
LOW = {"host_memory_available_bytes": 0.5 * GIB, "host_memory_total_bytes": 32 * GIB, "process_rss_bytes": 4 * GIB}


def test_sick() -> None:
    found = surely(RULE, read(LOOP.recording(), None, **LOW, workers_rss_bytes=40 * GIB))
    assert found.risk and found.prescriptions[0].settings == {"num_workers": 4}
    assert any("up to 27.5 GiB" in one for one in found.evidence), "shared pages are counted in each worker"


def test_fewer_workers_that_the_loader_refuses_are_left_to_the_hand() -> None:
    held = LOOP.but(loader={"refusals": {"num_workers": "The loader holds a running iterator."}})
    cure = surely(RULE, read(held.recording(), None, **LOW, workers_rss_bytes=40 * GIB)).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand" and "iterator" in cure.text


def test_one_worker_is_one() -> None:
    two = read(LOOP.but(workers=2).recording(), None, **LOW, workers_rss_bytes=40 * GIB)
    assert surely(RULE, two).prescriptions[0].text == "Use 1 loader worker"


def test_swapping() -> None:
    readings = {"host_memory_available_bytes": 10 * GIB, "host_memory_total_bytes": 32 * GIB}
    found = surely(RULE, read(LOOP.recording(), None, **readings, process_swapped_bytes=GIB, swap_in_bytes_per_s=5e6))
    assert "swapped out" in found.headline


def test_well() -> None:
    plenty = {"host_memory_available_bytes": 20 * GIB, "host_memory_total_bytes": 32 * GIB}
    assert asked(RULE, read(LOOP.recording(), None, **plenty)) is None
    assert asked(RULE, LOOP) is None


def test_workers_that_hold_little_are_not_taken_away() -> None:
    found = surely(RULE, read(LOOP.recording(), None, **LOW, workers_rss_bytes=GIB))
    assert not any(one.settings for one in found.prescriptions)


def test_a_twentieth_of_a_large_machine_is_plenty() -> None:
    large = {"host_memory_available_bytes": 20 * GIB, "host_memory_total_bytes": 1024 * GIB}
    assert asked(RULE, read(LOOP.recording(), None, **large)) is None


def test_others_swapping_is_not_ours() -> None:
    readings = {"host_memory_available_bytes": 10 * GIB, "host_memory_total_bytes": 32 * GIB}
    recording = read(LOOP.recording(), None, **readings, process_swapped_bytes=0, swap_in_bytes_per_s=5e7)
    assert asked(RULE, recording) is None


KILLED = "RuntimeError: DataLoader worker (pid 68) is killed by signal: Killed. "
GONE = "RuntimeError: DataLoader worker (pid(s) 68) exited unexpectedly"
PLENTY = {"host_memory_available_bytes": 20 * GIB, "host_memory_total_bytes": 32 * GIB}


def ended(reason: str, kills: float, loop: Loop = LOOP) -> Recording:
    """A run that ended so; the last reading before saw plenty of memory."""
    made = with_more(loop, outcome="failed" if reason else "completed", reason=reason)
    return read(made.but(setup={"world": World(oom_kills=kills)}).recording(), None, **PLENTY)


@pytest.mark.parametrize("reason", [KILLED, GONE])
def test_a_worker_that_the_system_killed(reason: str) -> None:
    found = surely(RULE, ended(reason, 1.0))
    assert found.headline.startswith("The memory of 32.0 GiB ran out")
    assert found.evidence[0] == reason and "system killed a process" in found.evidence[1]
    slow = diagnose(ended(reason, 2.0, LOOP.but(wait=60.0, fetch=480.0)))
    assert slow.findings[0].rule == RULE and slow.verdict == found.headline, "before what makes it slow"
    assert len(slow.findings) > 1


def test_where_the_kernel_does_not_count_torchs_word_is_taken() -> None:
    assert surely(RULE, ended(KILLED, float("nan"))).evidence[0] == KILLED
    assert asked(RULE, ended(GONE, float("nan"))) is None, "it may as well have crashed"


@pytest.mark.parametrize("reason", [KILLED, GONE, ""])
def test_who_is_killed_by_hand_did_not_lack_memory(reason: str) -> None:
    assert asked(RULE, ended(reason, 0.0)) is None


def test_another_process_that_was_killed_is_told_too() -> None:
    assert surely(RULE, ended("", 1.0)).evidence[0].startswith("the operating system killed a process")
