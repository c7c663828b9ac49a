"""device-round-trips: to the host and back inside of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu, with_more

RULE = "device-round-trips"
LOOP = on_gpu(forward=6.0, sync=4.0, gpu_gap=0.5, gpu_work=15.5)
# a hundred steps of 16 ms, one trip in each, 2.5 ms from the host and back
TRIPS = Traffic(to_device=300, to_device_bytes=3e8, to_host=100, to_host_bytes=1e8, round_trips=100, round_trip_s=0.25)


def test_sick() -> None:
    sick_loop = with_more(LOOP, traffic=TRIPS)
    found = sick(RULE, sick_loop)
    assert found.cost_share == pytest.approx(0.25 / 1.632, rel=0.02)
    assert found.evidence[0].startswith("1 round trip a step, 2.50 ms each")
    assert RULE in named(sick_loop)


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(to_device=200, to_device_bytes=3e8),
        Traffic(to_device=200, to_host=100, to_host_bytes=400.0),  # values that stay on the host
        Traffic(to_device=200, to_host=2, round_trips=2, round_trip_s=0.25),  # a rare trip of an evaluation
    ],
)
def test_well(traffic: Traffic) -> None:
    assert asked(RULE, with_more(LOOP, traffic=traffic)) is None


@pytest.mark.parametrize(
    ("loop", "round_trip_s"),
    [
        (LOOP, 0.4),  # 4 of 16 ms a step: the device's clock takes them for work
        (LOOP.but(caught_up=0.9, gpu_util=35.0), 0.9),  # 9 of 16 ms, the queue empty at every step's end
    ],
)
def test_what_it_costs_is_transfer_and_no_computing(loop: Loop, round_trip_s: float) -> None:
    often = replace(TRIPS, round_trip_s=round_trip_s)
    assert diagnose(with_more(loop, traffic=often).recording()).bottleneck == "transfer"
    assert diagnose(with_more(LOOP, traffic=Traffic(to_device=200)).recording()).bottleneck == "compute"


# 4 of 16 ms a step are copies, half of them back from the host, from where each trip takes 5 ms
COPYING = on_gpu(
    forward=6.0, transfer=4.0, sync=2.0, gpu_gap=4.5, gpu_work=11.5, pageable=2.0, loader={"num_workers": 4}
)
COPIES = Traffic(to_device=200, to_device_bytes=3e8, to_host=100, to_host_bytes=1.5e8, round_trips=100)


def _billed(loop: Loop) -> dict[str, float]:
    return {one.rule: one.cost_share or 0.0 for one in diagnose(loop.recording()).findings}


def test_the_copy_back_is_billed_once() -> None:
    trips = replace(COPIES, round_trip_s=0.5, round_trip_bytes=1.5e8, round_trip_copy_s=0.4)
    billed = _billed(with_more(COPYING, traffic=trips))
    assert next(iter(billed)) == RULE and "pageable-transfer" not in billed
    vitals = with_more(COPYING, traffic=trips).vitals()
    whole = with_more(COPYING, traffic=COPIES).vitals()
    assert vitals.exposed_transfer_share is not None
    assert vitals.exposed_transfer_share + vitals.tripped_share == pytest.approx(whole.exposed_transfer_share)
    assert vitals.transfers_per_step == pytest.approx(1.0)
    assert diagnose(with_more(COPYING, traffic=trips).recording()).bottleneck == "transfer"


def test_a_pageable_batch_beside_a_trip_is_still_billed() -> None:
    small = replace(COPIES, round_trip_s=0.1, round_trip_bytes=1e6, round_trip_copy_s=0.01)
    billed = _billed(with_more(COPYING, traffic=small))
    assert next(iter(billed)) == "pageable-transfer"
    assert billed["pageable-transfer"] == pytest.approx(
        _billed(with_more(COPYING, traffic=COPIES))["pageable-transfer"], rel=0.1
    )
