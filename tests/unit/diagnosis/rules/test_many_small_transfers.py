"""many-small-transfers: the calls cost more than the bytes, in a loop that the GPU waits for."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu, with_more

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
)


def test_sick() -> None:
    found = sick(RULE, with_more(PIECES, traffic=SMALL))
    assert found.kind == "lost" and found.cost_share == pytest.approx(0.2, rel=0.05)
    assert any("40 copies of 1\u202f000 B" in one for one in found.evidence)


@pytest.mark.parametrize(
    ("loop", "traffic"),
    [
        (PIECES.but(transfers=2.0), Traffic(to_device=200, to_device_bytes=4e6, small=200)),
        (PIECES.but(caught_up=0.0, gpu_gap=0.01), SMALL),  # the GPU has work queued meanwhile
        (PIECES.but(batch_bytes=80e6), Traffic(to_device=4000, to_device_bytes=8e9)),  # large pieces
    ],
)
def test_well(loop: Loop, traffic: Traffic) -> None:
    assert asked(RULE, with_more(loop, traffic=traffic)) is None


def test_pinning_is_not_the_cure_of_many_small_ones() -> None:
    pageable = with_more(PIECES.but(pageable=40.0), traffic=SMALL)
    assert RULE in named(pageable) and "pageable-transfer" not in named(pageable)
