"""What handing batches over takes, as it was timed on the machine of a run, and what a forecast makes of it."""

from __future__ import annotations

import pytest
from gpu_doctor.diagnosis.forecast.worker_costs import starting_s

from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.workers import taking_s
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import Speeds
from tests.support.recordings import Loop

LOOP = Loop(wait=6.0, fetch_cpu=6.0, forward=1.0, backward=1.0, optimizer=0.5, consumer_cpu=2.5, cores=2.0)
"""Fetching takes 6 of 8.5 ms: what one worker gains hangs on what it costs to hand a batch over."""


def at(message_ms: float, new_byte_s: float = 6e-10) -> Vitals:
    """The loop on a machine that needs so long to hand a tensor over."""
    return LOOP.but(setup={"speeds": Speeds(message_s=message_ms * 1e-3, new_byte_s=new_byte_s)}).vitals()


def one_worker(vitals: Vitals) -> Forecast:
    found = forecast(vitals, {"num_workers": 1})
    assert found is not None
    return found


def test_where_handing_over_takes_longer_a_worker_gains_less() -> None:
    fast, slow = at(0.2), at(0.8)
    assert taking_s(slow) - taking_s(fast) == pytest.approx(3 * 0.6e-3), "a batch of two tensors is three messages"
    assert starting_s(slow, 2) > starting_s(fast, 2)
    assert one_worker(fast).speedup > 1.1 * one_worker(slow).speedup


def test_a_worker_is_not_advised_where_the_machine_is_too_slow_to_hand_its_batches_over() -> None:
    assert one_worker(at(0.1)).pays
    assert not one_worker(at(0.8)).pays


def test_what_was_timed_is_surer_than_what_was_not() -> None:
    timed, untimed = one_worker(at(0.27)), one_worker(LOOP.vitals())
    assert timed.speedup == pytest.approx(untimed.speedup, rel=0.01)
    assert timed.low > untimed.low and timed.high < untimed.high


@pytest.mark.parametrize("speeds", [Speeds(), Speeds(message_s=2.7e-4, new_byte_s=6e-10)], ids=["untimed", "timed"])
def test_a_loop_that_two_workers_slow_down_may_get_faster_than_its_own_work_without_them(speeds: Speeds) -> None:
    # 3 ms of its own a step, 0.5 ms of fetching; alone each may take down to half as long.
    crowd = Loop(workers=2, fetch=0.5, forward=1.2, backward=1.2, optimizer=0.6, setup={"speeds": speeds})
    found = forecast(crowd.vitals(), {"num_workers": 0})
    assert found is not None and found.hoped is not None
    assert found.low < 3.0 / 3.5 < found.speedup < 1.0, "usually it is a little slower"
    assert 1.5 < found.hoped < 2.0 and 1.5 < found.high < 2.0


def test_of_a_larger_batch_the_bytes_alone_take_longer_to_hand_over() -> None:
    grown = {"num_workers": 1, "batch_size": 64}
    bytes_cost, messages_cost = (
        LOOP.but(batch_bytes=8e6, setup={"speeds": Speeds(message_s=message_s, new_byte_s=byte_s)})
        for message_s, byte_s in ((0.0, 2e-10), (5.3e-4, 0.0))
    )
    lighter, heavier = (
        forecast(one.vitals(), grown, (one.but(batch=64, wait=12.0, fetch_cpu=12.0).vitals(),))
        for one in (messages_cost, bytes_cost)
    )
    assert lighter is not None and heavier is not None
    assert one_worker(messages_cost.vitals()).step_s == pytest.approx(one_worker(bytes_cost.vitals()).step_s, rel=0.01)
    assert heavier.step_s > 1.05 * lighter.step_s
