"""heavy-transfer: the bytes alone take a tenth of the step on a fast link."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, named, sick, silence, top
from tests.support.recordings import on_gpu, with_more

RULE = "heavy-transfer"
WIDE = Traffic(to_device=200, to_device_bytes=10e9, wide_bytes=9.5e9)
# 100 MB a step take 4 ms at 25 GB/s; the copies are not waited for, but the GPU's gap holds them
LOOP = on_gpu(transfer=0.1, other=4.9, gpu_gap=5.0, gpu_work=10.0, batch_bytes=100e6, pcie=(4, 16))


def test_sick() -> None:
    found = sick(RULE, with_more(LOOP, traffic=WIDE))
    assert found.cost_share == pytest.approx(4 / 15, rel=0.05)
    gain = found.prescriptions[0].predicted_speedup
    assert gain is not None and gain == pytest.approx(1 / (1 - 0.75 * 0.95 * found.cost_share))
    assert any("3 MiB a sample" in one for one in found.evidence)
    assert RULE in named(with_more(LOOP, traffic=WIDE))


def test_well() -> None:
    assert asked(RULE, with_more(LOOP.but(batch_bytes=20e6), traffic=WIDE)) is None


def test_copies_on_a_stream_of_their_own_cost_nothing() -> None:
    assert asked(RULE, with_more(LOOP.but(gpu_gap=0.1, gpu_work=14.9), traffic=WIDE)) is None


def test_a_gap_filled_by_the_loader_is_not_the_link() -> None:
    assert asked(RULE, with_more(LOOP.but(wait=4.9, other=0.0), traffic=WIDE)) is None


def test_bytes_that_are_narrow_already_have_no_cure_here() -> None:
    narrow = Traffic(to_device=200, to_device_bytes=10e9, wide_bytes=1e9)
    assert asked(RULE, with_more(LOOP, traffic=narrow)) is None


def test_a_link_that_was_seen_to_be_faster_is_believed() -> None:
    # waited for, 100 MB in 1.25 ms: 80 GB/s, so 1.25 of 15 ms is below the bar
    fast = Traffic(to_device=200, to_device_bytes=10e9, wide_bytes=9.5e9, blocking_pinned=200)
    assert asked(RULE, with_more(LOOP.but(transfer=1.25, other=3.75), traffic=fast)) is None


def test_the_link_is_the_one_that_was_read() -> None:
    assert "PCIe 4 with 16 lanes" in sick(RULE, with_more(LOOP, traffic=WIDE)).evidence[1]
    assert asked(RULE, with_more(LOOP.but(pcie=(5, 16), batch_bytes=40e6), traffic=WIDE)) is None
    narrow = sick(RULE, with_more(LOOP.but(pcie=(3, 4), batch_bytes=10e6), traffic=WIDE))
    assert narrow.cost_share == pytest.approx(10e6 / (0.8 * 3.94e9) / 15e-3, rel=0.01), "3.2 of 15 ms"


def test_a_link_that_nobody_read_is_not_priced() -> None:
    assert "speed of the link to the GPU" in silence(RULE, with_more(LOOP.but(pcie=None), traffic=WIDE))


def test_pageable_memory_comes_first() -> None:
    pageable = with_more(LOOP.but(transfer=5.0, other=0.0, pageable=2.0), traffic=WIDE)
    assert top(pageable) == "pageable-transfer"
    assert RULE not in named(pageable)
