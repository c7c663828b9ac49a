"""workers-wait-for-each-other: two runs show that a fetch takes longer with more workers."""

from __future__ import annotations

import pytest

import gpu_doctor
from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.trials import race
from tests.support.recordings import Loop

RULE = "workers-wait-for-each-other"
LOCKED = Loop(wait=20.0, workers=2, fetch=60.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=4.0)
"""Two workers under a lock that a batch needs for 30 ms."""
ALONE = LOCKED.but(workers=0, wait=30.0, fetch=30.0)
FOUR = LOCKED.but(workers=4, fetch=120.0)


def found(loop: Loop, *others: Loop) -> Diagnosis:
    return diagnose(loop.recording(), [one.recording() for one in others])


@pytest.mark.parametrize(("loop", "other"), [(LOCKED, ALONE), (FOUR, LOCKED), (LOCKED, FOUR), (ALONE, LOCKED)])
def test_sick(loop: Loop, other: Loop) -> None:
    (first,) = found(loop, other).findings
    assert first.rule == RULE and first.kind == "lost"
    assert first.cost_share == pytest.approx(loop.wait / (loop.wait + 10.0), rel=0.01)
    assert not any("num_workers" in one.settings for cure in found(loop, other).findings for one in cure.prescriptions)
    assert "with num_workers=" in first.evidence[0]


def test_one_run_cannot_tell_it_from_a_slow_server() -> None:
    assert [one.rule for one in found(LOCKED).findings] == ["too-few-workers"]


@pytest.mark.parametrize(
    "other",
    [
        LOCKED.but(workers=4, wait=5.0),  # a fetch takes as long with four
        ALONE.but(wait=52.0, fetch=52.0),  # hardly longer
        ALONE.but(settings={"batch_size": 16}),  # another fetch
        LOCKED,  # the same number
    ],
)
def test_well(other: Loop) -> None:
    assert [one.rule for one in found(LOCKED, other).findings] == ["too-few-workers"]


def test_workers_that_queue_for_a_core_do_not_wait_for_each_other() -> None:
    computing = LOCKED.but(fetch_cpu=58.0, cores=2.0)
    assert RULE not in [one.rule for one in found(computing, ALONE.but(fetch_cpu=29.0)).findings]


def test_a_trial_of_more_workers_is_the_second_run() -> None:
    case = gpu_doctor.case("pass")
    case.recordings.append(LOCKED.recording())
    entry = race.entered(case, {"num_workers": 4})
    entry.bases.append(LOCKED.recording())
    entry.candidates.append(FOUR.but(settings={"num_workers": 4}).recording())
    race.concluded(case, entry, {})
    assert case.diagnosis is not None and case.diagnosis.findings[0].rule == RULE
