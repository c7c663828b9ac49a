"""gpu-sync: trips to the host are transfer and no computing, and their copies are billed once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording.setup import Traffic
from tests.support.recordings import Loop, with_more
from tests.support.rule_loops.host import COPIES, COPYING, TRIPPING, TRIPS

ROUND = replace(COPIES, round_trip_s=0.5, round_trip_bytes=1.5e8, round_trip_copy_s=0.4)


@pytest.mark.parametrize(
    ("loop", "traffic", "bottleneck"),
    [
        # 4 of 16 ms a step: the device's clock takes them for work
        (TRIPPING, replace(TRIPS, round_trip_s=0.4), "transfer"),
        # 9 of 16 ms, the queue empty at every step's end
        (TRIPPING.but(caught_up=0.9, gpu_util=35.0), replace(TRIPS, round_trip_s=0.9), "transfer"),
        (COPYING, ROUND, "transfer"),
        (TRIPPING, Traffic(to_device=200), "compute"),
    ],
)
def test_what_a_trip_costs_is_transfer_and_no_computing(loop: Loop, traffic: Traffic, bottleneck: str) -> None:
    assert diagnose(with_more(loop, traffic=traffic).recording()).bottleneck == bottleneck


def test_the_copy_back_is_taken_out_of_the_exposed_copies() -> None:
    vitals, whole = (with_more(COPYING, traffic=one).vitals() for one in (ROUND, COPIES))
    assert vitals.exposed_transfer_share is not None
    assert vitals.exposed_transfer_share + vitals.tripped_share == pytest.approx(whole.exposed_transfer_share)
    assert vitals.transfers_per_step == pytest.approx(1.0)


def test_a_pageable_batch_beside_a_small_trip_is_still_billed() -> None:
    small = replace(COPIES, round_trip_s=0.1, round_trip_bytes=1e6, round_trip_copy_s=0.01)
    beside, alone = (diagnose(with_more(COPYING, traffic=one).recording()).findings[0] for one in (small, COPIES))
    assert beside.rule == alone.rule == "pageable-transfer"
    assert beside.cost_share == pytest.approx(alone.cost_share, rel=0.1)
