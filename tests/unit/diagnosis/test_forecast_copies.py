"""Pinned memory and copies that are not waited for, forecast from bytes and bandwidths. GPU: recordings, none run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import Traffic
from tests.support.recordings import Loop, on_gpu

PAGEABLE = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, pageable=2.0, batch_bytes=50e6)
"""50 MB in 5 ms: 10 GB/s, of a step of 15 ms."""
WAITED = Traffic(to_device=200, to_device_bytes=1e10, blocking_pinned=200)


def on_link(loop: Loop, gen: float = 4.0, width: float = 16.0, **more: Any) -> Vitals:
    return replace(loop.vitals(), pcie_gen=gen, pcie_width=width, **more)


def told(vitals: Vitals, *others: Vitals, **settings: bool) -> Forecast:
    found = forecast(vitals, settings or {"pin_memory": True}, others)
    assert found is not None
    assert found.low <= found.speedup <= found.high
    return found


def unpinned(**changes: object) -> Loop:
    return PAGEABLE.but(loader={"num_workers": 4, "prefetch_factor": 2}, workers=4, **changes)


def test_the_link_says_how_long_a_pinned_copy_takes() -> None:
    # PCIe 4 x16: 25 GB/s of 31.5, so 2 ms of the 5 remain: 15 -> 12 ms
    found = told(on_link(unpinned()))
    assert found.speedup == pytest.approx(15 / 12, rel=0.02)
    assert "PCIe 4 with 16 lanes" in found.why and "48 MiB" in found.why
    assert found.high < 15 / 11.4 * 1.06
    slow = told(on_link(unpinned(), 3.0, 4.0))  # 3.9 GB/s: no faster than what was measured, so nothing gained
    assert slow.speedup == pytest.approx(1.0)


def test_a_gpu_on_the_cpu_s_own_module_has_another_link() -> None:
    found = told(replace(unpinned().vitals(), c2c_bytes_per_s=447e9, pcie_gen=5.0, pcie_width=1.0))
    assert "NVLink-C2C" in found.why
    assert found.speedup == pytest.approx(15 / 10.14, rel=0.02)


def test_without_the_link_pinned_copies_are_about_twice_as_fast_as_pageable_ones() -> None:
    found = told(unpinned().vitals())
    assert found.speedup == pytest.approx(15 / 12.5, rel=0.02)
    assert found.low < 1.12 and found.high > 1.3, "and that is not known well"


def test_another_run_with_pinned_memory_tells_better() -> None:
    other = replace(on_gpu(transfer=2.5, gpu_gap=2.5, gpu_work=10.0, batch_bytes=50e6).vitals(), traffic=WAITED)
    wide = told(unpinned().vitals())
    found = told(unpinned().vitals(), other)
    assert found.speedup == pytest.approx(15 / 12.5, rel=0.02)
    assert found.high - found.low < wide.high - wide.low


def test_without_workers_the_loop_pins_each_batch_itself() -> None:
    # 50 MB at 8 GB/s are 6 ms in next(), more than pinning saves
    alone = PAGEABLE.but(loader={"num_workers": 0})
    found = told(on_link(alone))
    assert found.speedup < 0.9 and "no workers" in found.why


def test_copies_that_are_waited_for_leave_the_copying() -> None:
    # 20 MB: 0.8 ms of copying on the link, of 5 ms in which the host waits and the GPU idles
    loop = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, batch_bytes=20e6)
    found = told(on_link(loop, traffic=WAITED), non_blocking=True)
    assert found.speedup == pytest.approx(15 / 10.8, rel=0.02)
    assert forecast(replace(loop.vitals(), traffic=WAITED), {"non_blocking": True}) is None, "measure it"


def test_both_at_once() -> None:
    assert told(on_link(unpinned()), pin_memory=True, non_blocking=True).speedup == pytest.approx(15 / 12, rel=0.02)


def test_many_small_copies_cost_their_calls_pinned_or_not() -> None:
    small = unpinned(batch_bytes=1e4, transfer=0.4, gpu_gap=0.4, transfers=40.0, pageable=40.0)
    assert told(on_link(small)).speedup == pytest.approx(1.0, abs=0.001)


def test_what_is_hidden_behind_the_gpu_gains_nothing() -> None:
    assert told(on_link(unpinned(gpu_gap=0.05, gpu_work=14.95))).speedup < 1.01


def test_what_cannot_be_known_is_none() -> None:
    assert forecast(Loop(transfer=5.0).vitals(), {"pin_memory": True}) is None, "no GPU is invented"
    assert forecast(PAGEABLE.vitals(), {"pin_memory": True}) is None, "pinned as it is"
    assert forecast(unpinned().vitals(), {"pin_memory": True, "prefetch_factor": 8}) is None, "of one nothing is known"


def test_the_rule_says_what_is_forecast() -> None:
    finding = next(one for one in diagnose(unpinned().recording()).findings if one.rule == "pageable-transfer")
    cure = finding.prescriptions[0]
    assert cure.predicted_low is not None and cure.predicted_speedup is not None and cure.predicted_high is not None
    assert cure.predicted_low < cure.predicted_speedup < cure.predicted_high
