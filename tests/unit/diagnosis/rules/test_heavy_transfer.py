"""heavy-transfer: the GPU waits while the bytes are copied."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, on_gpu, with_more

RULE = "heavy-transfer"
WIDE = Traffic(to_device=200, to_device_bytes=10e9, wide_bytes=9.5e9)
LOOP = on_gpu(transfer=4.0, other=1.0, gpu_gap=4.0, gpu_work=11.0, batch_bytes=100e6)


def test_sick() -> None:
    found = sick(RULE, with_more(LOOP, traffic=WIDE))
    assert found.kind == "lost" and found.cost_share == pytest.approx(4 / 15, rel=0.05)
    assert any("3 MiB a sample" in one for one in found.evidence)
    assert "uint8" in found.prescriptions[0].code and "Stream()" in found.prescriptions[1].code
    assert all(one.predicted_speedup is None for one in found.prescriptions)
    assert RULE in named(with_more(LOOP, traffic=WIDE))


def test_bytes_that_are_narrow_already_are_copied_ahead() -> None:
    (cure,) = sick(RULE, with_more(LOOP, traffic=Traffic(to_device=200, to_device_bytes=10e9))).prescriptions
    assert "wait_stream" in cure.code


def test_the_link_that_was_read_is_told() -> None:
    assert "PCIe 4 with 16 lanes" in sick(RULE, with_more(LOOP.but(pcie=(4, 16)), traffic=WIDE)).evidence[1]


@pytest.mark.parametrize(
    "loop",
    [
        LOOP.but(transfer=0.3, gpu_gap=0.3, gpu_work=14.7),
        LOOP.but(gpu_gap=0.1, gpu_work=14.9),  # copied on a stream of their own
        LOOP.but(wait=4.0, gpu_gap=4.0),  # the loader fills the gap
        LOOP.but(pageable=2.0),  # pageable-transfer
        Loop(transfer=4.0),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, with_more(loop, traffic=WIDE)) is None
