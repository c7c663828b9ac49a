"""pageable-transfer: exposed copies from memory that is not pinned."""

from __future__ import annotations

import pytest

from tests.support.found import asked, sick, top
from tests.support.recordings import on_gpu

RULE = "pageable-transfer"
COPYING = on_gpu(transfer=5.0, gpu_gap=5.0, gpu_work=10.0, pageable=2.0, batch_bytes=50e6)
COPYING = COPYING.but(workers=4, loader={"num_workers": 4, "prefetch_factor": 2})


def test_sick() -> None:
    found = sick(RULE, COPYING)
    assert found.cost_share == pytest.approx(2.5 / 15, rel=0.02), "what pinning saves: half of the 5 ms"
    on_link = sick(RULE, COPYING.but(pcie=(4, 16)))
    assert on_link.cost_share == pytest.approx(3 / 15, rel=0.02), "50 MB take 2 ms over PCIe 4"
    assert found.prescriptions[0].settings == {"pin_memory": True}
    assert any("48 MiB" in one for one in found.evidence)
    assert top(COPYING) == RULE


def test_well() -> None:
    assert asked(RULE, COPYING.but(pageable=0.0)) is None


def test_without_workers_pinning_takes_the_loop_as_long_as_it_saves() -> None:
    assert asked(RULE, COPYING.but(workers=0)) is None
    assert asked(RULE, COPYING.but(workers=0, batch_bytes=5e6)) is not None, "5 MB are pinned in 0.6 ms"


def test_a_loader_that_pins_already_is_not_told_to_pin() -> None:
    cure = sick(RULE, COPYING.but(loader={"pin_memory": True})).prescriptions[0]
    assert cure.settings == {} and cure.predicted_speedup is None
    assert sick(RULE, COPYING.but(loader={"pin_memory": True})).cost_share == pytest.approx(2.5 / 15, rel=0.02)


def test_the_gain_carries_its_doubt() -> None:
    cure = sick(RULE, COPYING).prescriptions[0]
    assert cure.predicted_low and cure.predicted_speedup and cure.predicted_high
    assert cure.predicted_low < cure.predicted_speedup < cure.predicted_high
    assert cure.predicted_speedup == pytest.approx(15 / 12.5, rel=0.03)


def test_copies_that_the_gpu_does_not_notice() -> None:
    assert asked(RULE, COPYING.but(gpu_gap=0.1, gpu_work=15.0)) is None


def test_a_gap_filled_by_the_loader_is_not_the_copies() -> None:
    # 8 ms of wait fill the whole gap; the copies that follow lie behind it.
    assert asked(RULE, on_gpu(wait=8.0, transfer=0.3, gpu_gap=8.0, pageable=2.0)) is None
