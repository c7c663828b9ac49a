"""fragmented-memory: much is held in pieces, and it is missed."""

from __future__ import annotations

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


def test_well() -> None:
    assert (
        asked(RULE, read(on_gpu(peak_share=0.6).recording(), torch_reserved_bytes=60e9, torch_alloc_retries=0)) is None
    )


def test_a_cache_left_by_an_earlier_cell_is_no_fragmentation() -> None:
    assert asked(RULE, read(on_gpu(peak_share=0.2).recording(), torch_reserved_bytes=60e9)) is None


def test_twice_of_little_is_missed_by_nobody() -> None:
    assert asked(RULE, read(on_gpu(peak_share=0.1).recording(), torch_reserved_bytes=[1e9] * 4 + [30e9] * 20)) is None


def test_retries_of_a_card_that_is_simply_full() -> None:
    recording = read(on_gpu(peak_share=0.95).recording(), torch_reserved_bytes=78e9, torch_alloc_retries=9)
    assert asked(RULE, recording) is None
