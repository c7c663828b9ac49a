"""slow-link: exposed copies over a link that is less than the card's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import on_gpu, read

RULE = "slow-link"
COPYING = on_gpu(transfer=5.0, gpu_gap=5.0)
BEST: dict[str, Any] = {"pcie_gen": 5, "pcie_width": 16, "pcie_gen_max": 5, "pcie_width_max": 16, "pcie_gen_card": 5}


def card(loop: Any = COPYING, **changes: Any) -> Any:
    return read(loop.recording(), 0, **{**BEST, **changes})


def test_sick() -> None:
    found = surely(RULE, card(pcie_width=4))
    assert found.cost_share == pytest.approx(5 / 15 * 0.75, abs=0.02)
    assert "gen 5 x4 (15.8 GB/s)" in found.headline


OLD_HOST = {"pcie_gen": 3, "pcie_gen_max": 3, "pcie_gen_card": 5}


def test_a_slot_of_an_older_generation_is_as_fast_as_it_can_be() -> None:
    assert asked(RULE, card(**OLD_HOST)) is None
    assert asked(RULE, card(**{**OLD_HOST, "pcie_gen_max": 4, "pcie_gen": 4})) is None


def test_missing_lanes_in_such_a_slot_are_priced_against_what_the_slot_allows() -> None:
    found = surely(RULE, card(**OLD_HOST, pcie_width=4))
    assert found.cost_share == pytest.approx(5 / 15 * 0.75, abs=0.02)
    assert "gen 3 x16 (15.8 GB/s)" in found.headline and "gen 5" not in found.headline


def test_a_link_below_what_the_slot_allows() -> None:
    found = surely(RULE, card(pcie_gen=3))
    assert found.cost_share == pytest.approx(5 / 15 * 0.75, abs=0.02) and "gen 5 x16" in found.headline


def test_a_slot_that_is_not_known() -> None:
    readings = {name: value for name, value in BEST.items() if name != "pcie_gen_max"}
    assert asked(RULE, read(COPYING.recording(), 0, **{**readings, "pcie_gen": 3})) is None


def test_well() -> None:
    assert asked(RULE, card()) is None
    assert asked(RULE, COPYING) is None


def test_copies_over_nvlink_c2c_do_not_take_the_pcie_link() -> None:
    assert asked(RULE, card(pcie_width=1, c2c_bytes_per_s=447e9)) is None


def test_a_link_that_rests_between_the_copies_is_judged_at_its_best() -> None:
    assert asked(RULE, card(pcie_gen=[1, 1, 5, 5, 1, 5, 1, 1])) is None


def test_hidden_copies_need_no_faster_link() -> None:
    assert asked(RULE, card(on_gpu(), pcie_width=4)) is None
