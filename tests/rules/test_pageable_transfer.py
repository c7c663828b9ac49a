"""pageable-transfer: exposed copies from memory that is not pinned."""

from __future__ import annotations

import pytest
from found import asked, sick, top
from recordings import Loop, on_gpu

RULE = "pageable-transfer"
COPYING = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, pageable=2.0, batch_bytes=50e6)


def test_sick() -> None:
    found = sick(RULE, COPYING)
    assert found.cost_share == pytest.approx(5 / 15, rel=0.02)
    assert found.prescriptions[0].settings == {"pin_memory": True}
    assert any("50.00 MB" in one for one in found.evidence)
    assert top(COPYING) == RULE


def test_well() -> None:
    assert asked(RULE, COPYING.but(pageable=0.0)) is None


def test_copies_that_the_gpu_does_not_notice() -> None:
    assert asked(RULE, COPYING.but(gpu_gap=0.1, gpu_work=15.0)) is None


def test_a_gap_filled_by_the_loader_is_not_the_copies() -> None:
    # 8 ms of wait fill the whole gap; the copies that follow lie behind it.
    assert asked(RULE, on_gpu(wait=8.0, transfer=0.3, gpu_gap=8.0, pageable=2.0)) is None


def test_no_gpu_is_invented_on_a_cpu() -> None:
    assert asked(RULE, Loop(transfer=5.0)) is None
