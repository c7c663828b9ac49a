"""slow-storage: the fetch waits for bytes that come from a disk or a network drive."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from tests.support.found import rule
from tests.support.recordings import Loop

RULE = "slow-storage"
WAITING = Loop(wait=40.0, fetch_cpu=2.0, consumer_cpu=10.0, cores=2.0)
BUSY = Loop(wait=10.0, workers=2, fetch=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)


def reading(loop: Loop, read: float, stored: float | None, queued: float = 0.0) -> Recording:
    """The loop with bytes read and bytes from storage per fetch, and ms queued for a core."""
    recording = loop.recording()
    fetch = recording.fetches[0]
    n = fetch.batches
    counted = dataclasses.replace(
        fetch,
        read_bytes=n * read,
        stored_bytes=None if stored is None else n * stored,
        queued_s=n * queued * 1e-3,
    )
    return dataclasses.replace(recording, fetches=(counted,))


def asked(recording: Recording) -> Finding | None:
    """What the rule finds."""
    vitals = measure(recording)
    if any(getattr(vitals, need) is None for need in rule(RULE).needed(vitals)):
        return None
    return rule(RULE).finds(vitals)


def names(recording: Recording) -> list[str]:
    """All that is found, dearest first."""
    return [one.rule for one in diagnose(recording).findings]


def test_sick() -> None:
    found = asked(reading(WAITING, 3e6, 3e6))
    assert found is not None
    assert found.cost_share == pytest.approx(0.8 * 38 / 40, abs=0.01)
    assert "3 MiB of the 3 MiB" in found.evidence[0] and "60.0 MB/s" in found.evidence[1]
    first, second = found.prescriptions
    assert int(first.settings["num_workers"]) > 2  # more than cores
    assert (first.predicted_low or 9) <= 1.0  # the storage may be at its limit
    assert second.safety.value == "by-hand"


def test_only_fetches_that_read_from_it_wait_for_it() -> None:
    recording = reading(WAITING, 3e6, 3e6)
    fetch = recording.fetches[0]
    tenth, all_of_them = (
        asked(dataclasses.replace(recording, fetches=(dataclasses.replace(fetch, stored_s=part * fetch.wall_s),)))
        for part in (0.1, 1.0)
    )
    assert tenth is None
    assert all_of_them is not None and all_of_them.cost_share == pytest.approx(0.8 * 38 / 40, abs=0.01)


def test_where_workers_pay_the_rule_about_them_says_it_all() -> None:
    for loop, first in ((WAITING, "loader-without-workers"), (BUSY, "too-few-workers")):
        (found,) = diagnose(reading(loop, 3e6, 3e6)).findings  # one cause of one wait
        assert found.rule == first
        assert any("of the 3 MiB that it reads come from there" in one for one in found.evidence)
        assert [one.safety.value for one in found.prescriptions] == ["safe", "by-hand"]
        assert "local disk" in found.prescriptions[1].text
    (warm,) = diagnose(reading(WAITING, 3e6, 0.0)).findings
    assert len(warm.prescriptions) == 1 and not any("storage" in one for one in warm.evidence)


def test_where_more_workers_would_not_help_it_stands_alone() -> None:
    many = Loop(wait=20.0, workers=64, fetch=1500.0, fetch_cpu=2.0, consumer_cpu=10.0, cores=2.0, batch_bytes=20e6)
    recording = reading(many, 20e6, 20e6)
    found = asked(recording)
    assert found is not None
    assert names(recording)[0] == RULE


def test_mapped_files_are_read_without_reads() -> None:
    assert asked(reading(WAITING, 0.0, 3e6)) is not None


def test_well() -> None:
    assert asked(reading(Loop(), 3e6, 3e6)) is None
    assert asked(reading(BUSY.but(wait=0.1, workers=8), 3e6, 3e6)) is None


def test_a_warm_page_cache_is_left_alone() -> None:
    assert asked(reading(WAITING, 3e6, 0.0)) is None
    assert RULE not in names(reading(WAITING, 3e6, 0.0))


def test_a_fetch_that_sleeps_or_asks_a_server_is_another_rule() -> None:
    assert asked(reading(WAITING, 0.0, 0.0)) is None
    assert asked(reading(WAITING, 4096.0, 4096.0)) is None  # a page in 38 ms is not what it waited for
    assert names(reading(WAITING, 0.0, 0.0)) == ["loader-without-workers"]


def test_a_fetch_that_computes_what_it_reads_is_another_rule() -> None:
    assert asked(reading(WAITING.but(fetch_cpu=35.0), 3e6, 3e6)) is None


def test_a_fetch_that_queues_for_a_core_is_not_waiting_for_storage() -> None:
    assert asked(reading(WAITING, 3e6, 3e6, queued=30.0)) is None


def test_where_it_was_not_counted_it_is_silent() -> None:
    recording = reading(WAITING, 3e6, None)
    assert RULE not in names(recording)
    assert any(RULE in str(one) for one in diagnose(recording).silent)
