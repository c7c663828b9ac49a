"""slow-storage: the fetch waits for bytes that come from a disk or a network drive."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Recording
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop

RULE = "slow-storage"
WAITING = Loop(wait=40.0, fetch_cpu=2.0, consumer_cpu=10.0, cores=2.0)
BUSY = Loop(wait=10.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)
MANY = Loop(wait=20.0, workers=64, fetch=1500.0, fetch_cpu=2.0, consumer_cpu=10.0, cores=2.0, batch_bytes=20e6)


def reading(loop: Loop, read: float, stored: float | None, queued: float = 0.0, part: float = 1.0) -> Recording:
    """The loop with bytes read and bytes from storage per fetch, and ms queued for a core."""
    recording = loop.recording()
    fetch = recording.fetches[0]
    n = fetch.batches
    counted = dataclasses.replace(
        fetch,
        read_bytes=n * read,
        stored_bytes=None if stored is None else n * stored,
        stored_s=part * fetch.wall_s,
        queued_s=n * queued * 1e-3,
    )
    return dataclasses.replace(recording, fetches=(counted,))


def test_sick() -> None:
    found = sick(RULE, reading(MANY, 20e6, 20e6))
    assert found.kind == "lost" and found.cost_share == pytest.approx(2 / 3, abs=0.01)
    assert any("19 MiB of the 19 MiB" in one for one in found.evidence)
    assert [one.safety.value for one in found.prescriptions] == ["by-hand"]
    assert "local disk" in found.prescriptions[0].text


@pytest.mark.parametrize(("loop", "first"), [(WAITING, "loader-without-workers"), (BUSY, "too-few-workers")])
def test_where_workers_pay_they_are_the_cause_and_the_storage_is_evidence(loop: Loop, first: str) -> None:
    (found,) = diagnose(reading(loop, 3e6, 3e6)).findings  # one cause of one wait
    assert found.rule == first
    assert any("of the 3 MiB that it reads" in one for one in found.evidence)
    assert [one.safety.value for one in found.prescriptions] == ["safe", "by-hand"]
    low = found.prescriptions[0].predicted_low
    assert low is not None and low <= 1.1, "the storage may be at its limit"
    (warm,) = diagnose(reading(loop, 3e6, 0.0)).findings
    assert len(warm.prescriptions) == 1 and not any("storage" in one for one in warm.evidence)


@pytest.mark.parametrize(
    "recording",
    [
        reading(MANY, 20e6, 0.0),  # a warm page cache
        reading(MANY, 4096.0, 4096.0),  # a page in 1.5 s is not what it waited for: a server, a lock, a sleep
        reading(MANY, 20e6, 20e6, part=0.1),  # of ten fetches one reads from it
        reading(MANY.but(fetch_cpu=1400.0), 20e6, 20e6),  # it computes what it reads
        reading(MANY, 20e6, 20e6, queued=1400.0),  # it queues for a core
        reading(BUSY.but(wait=0.1, workers=8), 3e6, 3e6),  # nobody waits
    ],
    ids=["warm", "server", "seldom", "computes", "queues", "hidden"],
)
def test_well(recording: Recording) -> None:
    assert asked(RULE, recording) is None


def test_mapped_files_are_read_without_reads() -> None:
    assert asked(RULE, reading(MANY, 0.0, 20e6)) is not None


def test_where_it_was_not_counted_it_is_silent() -> None:
    recording = reading(MANY, 20e6, None)
    assert RULE not in named(recording)
    assert any(RULE in str(one) for one in diagnose(recording).silent)
