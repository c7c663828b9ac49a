"""fragmented-memory: much is held in pieces, and it is missed."""

from __future__ import annotations

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import on_gpu, read

RULE = "fragmented-memory"
HOARD = [10e9] * 4 + [70e9] * 20


def test_sick() -> None:
    recording = read(on_gpu(peak_share=0.3).recording(), torch_reserved_bytes=HOARD, torch_inactive_split_bytes=20e9)
    found = surely(RULE, recording)
    assert found.risk and "expandable_segments" in found.prescriptions[0].code
    assert any("free pieces" in one for one in found.evidence)


def test_retries_beside_unused_memory() -> None:
    recording = read(on_gpu(peak_share=0.7).recording(), torch_reserved_bytes=76e9, torch_alloc_retries=3)
    assert any("3 allocations" in one for one in surely(RULE, recording).evidence)


@pytest.mark.parametrize(
    ("peak", "reserved", "retries"),
    [
        (0.6, 60e9, 0),
        (0.2, 60e9, 0),  # an earlier cell's cache
        (0.1, [1e9] * 4 + [30e9] * 20, 0),  # twice of little is missed by nobody
        (0.95, 78e9, 9),  # a card that is simply full
    ],
)
def test_well(peak: float, reserved: float | list[float], retries: int) -> None:
    recording = read(on_gpu(peak_share=peak).recording(), torch_reserved_bytes=reserved, torch_alloc_retries=retries)
    assert asked(RULE, recording) is None
