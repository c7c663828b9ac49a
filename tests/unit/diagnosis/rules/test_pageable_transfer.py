"""pageable-transfer: exposed copies from memory that is not pinned."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import Traffic
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, on_gpu, with_more

RULE = "pageable-transfer"
COPYING = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, pageable=2.0, batch_bytes=50e6)
COPYING = COPYING.but(workers=4, loader={"num_workers": 4, "prefetch_factor": 2})


def test_sick() -> None:
    found = sick(RULE, COPYING)
    assert found.kind == "lost" and found.cost_share == pytest.approx(5 / 15, rel=0.02), "all that was exposed"
    assert found.prescriptions[0].settings == {"pin_memory": True}
    assert any("48 MiB" in one for one in found.evidence)
    assert top(COPYING) == RULE


def test_the_price_is_measured_whatever_the_link() -> None:
    assert sick(RULE, COPYING.but(pcie=(4, 16))).cost_share == sick(RULE, COPYING).cost_share


def test_a_loader_that_pins_already_is_not_told_to_pin() -> None:
    cure = sick(RULE, COPYING.but(loader={"pin_memory": True})).prescriptions[0]
    assert cure.settings == {} and cure.predicted_speedup is None and "def pin_memory" in cure.code


def test_without_workers_the_loop_would_pin_by_itself() -> None:
    assert "num_workers=1" in sick(RULE, COPYING.but(workers=0)).prescriptions[0].code


@pytest.mark.parametrize(
    "loop",
    [
        COPYING.but(pageable=0.0),
        COPYING.but(gpu_gap=0.1, gpu_work=15.0),  # the GPU does not notice them
        on_gpu(wait=8.0, transfer=0.3, gpu_gap=8.0, pageable=2.0),  # the loader fills the gap
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_many_small_copies_are_another_cause() -> None:
    small = Traffic(to_device=4000, to_device_bytes=4e6, small=4000)
    pieces = COPYING.but(transfers=40.0, pageable=40.0, batch_bytes=40e3)
    assert asked(RULE, with_more(pieces, traffic=small)) is None
