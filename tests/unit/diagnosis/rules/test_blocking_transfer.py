"""blocking-transfer: pinned batches, and the loop waits for each copy all the same."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, sick, silence, top
from tests.support.recordings import on_gpu, with_more

RULE = "blocking-transfer"
WAITED = Traffic(to_device=200, to_device_bytes=2e9, blocking_pinned=200)
# 20 MB a step: 0.8 ms of copying on the link, of 5 ms in which the host waits and the GPU idles
LOOP = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, batch_bytes=20e6, pcie=(4, 16))
BLOCKING = with_more(LOOP, traffic=WAITED)


def test_sick() -> None:
    found = sick(RULE, BLOCKING)
    assert found.cost_share == pytest.approx(4.2 / 15, rel=0.02)
    assert found.prescriptions[0].settings == {"non_blocking": True}
    assert top(BLOCKING) == RULE


def test_well() -> None:
    assert asked(RULE, with_more(LOOP, traffic=Traffic(to_device=200, to_device_bytes=2e9))) is None


def test_a_link_that_nobody_read_is_not_priced() -> None:
    blind = with_more(LOOP.but(pcie=None), traffic=WAITED)
    assert "speed of the link to the GPU" in silence(RULE, blind)


def test_pageable_memory_is_another_rule() -> None:
    assert asked(RULE, with_more(LOOP.but(pageable=2.0), traffic=Traffic(to_device=200, to_device_bytes=2e9))) is None


def test_copies_that_the_gpu_does_not_notice() -> None:
    assert asked(RULE, with_more(LOOP.but(gpu_gap=0.1, gpu_work=15.0), traffic=WAITED)) is None


def test_a_wait_that_is_all_copying_stays_with_non_blocking() -> None:
    # 120 MB take 4.8 of the 5 ms on the link itself: not waiting for them hides nothing
    assert asked(RULE, with_more(LOOP.but(batch_bytes=120e6), traffic=WAITED)) is None


def test_beside_launches_the_copy_hides_as_well() -> None:
    # 70 MB take 2.8 of the 5 ms on the link; a GPU that outruns its host has the time for them in the other 10
    launching = LOOP.but(batch_bytes=70e6, caught_up=1.0)
    assert sick(RULE, with_more(launching, traffic=WAITED)).cost_share == pytest.approx(5 / 15, rel=0.02)
    assert sick(RULE, with_more(launching.but(caught_up=0.0), traffic=WAITED)).cost_share < 0.2


def test_a_trial_of_the_cure_is_not_told_to_try_it() -> None:
    assert asked(RULE, with_more(LOOP.but(settings={"non_blocking": True}), traffic=WAITED)) is None
