"""many-small-transfers: the calls cost more than the bytes, in a loop that the GPU waits for."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, named, sick
from tests.support.recordings import on_gpu, with_more

RULE = "many-small-transfers"
SMALL = Traffic(to_device=4000, to_device_bytes=4e6, small=4000)
# forty copies of 1 kB in 1 ms of a 5 ms step of the host, while the GPU has 3 ms of work
PIECES = on_gpu(
    transfer=1.0,
    forward=2.0,
    backward=1.5,
    optimizer=0.5,
    gpu_work=4.5,
    gpu_gap=0.5,
    caught_up=1.0,
    transfers=40.0,
    batch_bytes=40e3,
    gpu_util=60.0,
)


def test_sick() -> None:
    found = sick(RULE, with_more(PIECES, traffic=SMALL))
    assert found.cost_share == pytest.approx(0.2, rel=0.05)
    assert any("40 copies of 1\u202f000 B" in one for one in found.evidence)


def test_well() -> None:
    few = Traffic(to_device=200, to_device_bytes=4e6, small=200)
    assert asked(RULE, with_more(PIECES.but(transfers=2.0), traffic=few)) is None


def test_copies_made_while_the_gpu_has_work_queued_cost_nothing() -> None:
    assert asked(RULE, with_more(PIECES.but(caught_up=0.0, gpu_gap=0.01), traffic=SMALL)) is None


def test_large_pieces_are_another_rule() -> None:
    large = Traffic(to_device=4000, to_device_bytes=8e9, small=0)
    assert asked(RULE, with_more(PIECES.but(batch_bytes=80e6), traffic=large)) is None


def test_pinning_is_not_the_cure_of_many_small_ones() -> None:
    pageable = with_more(PIECES.but(pageable=40.0), traffic=SMALL)
    assert RULE in named(pageable)
    assert "pageable-transfer" not in named(pageable)
