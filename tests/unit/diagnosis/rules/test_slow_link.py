"""slow-link: exposed copies over a link that is less than what card and slot allow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import on_gpu, read

RULE = "slow-link"
COPYING = on_gpu(transfer=5.0, gpu_gap=5.0)
BEST: dict[str, Any] = {"pcie_gen": 5, "pcie_width": 16, "pcie_gen_max": 5, "pcie_width_max": 16}


def card(loop: Any = COPYING, **changes: Any) -> Any:
    return read(loop.recording(), 0, **{**BEST, **changes})


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ({"pcie_width": 4}, "gen 5 x4"),
        ({"pcie_gen": 3}, "gen 5 x16"),
        ({"pcie_gen": 3, "pcie_gen_max": 3, "pcie_width": 4}, "gen 3 x16"),  # lanes missing in an older slot
    ],
)
def test_sick(readings: dict[str, Any], said: str) -> None:
    found = surely(RULE, card(**readings))
    assert found.kind == "at-most" and found.cost_share == pytest.approx(5 / 15 * 0.75, abs=0.02)
    assert said in found.headline
    assert asked("heavy-transfer", card(**readings)) is None, "the same seconds"


@pytest.mark.parametrize(
    "recording",
    [
        card(),
        COPYING,  # nobody read the link
        card(pcie_gen=4, pcie_gen_max=4),  # the host cannot make it faster
        card(pcie_width=1, c2c_bytes_per_s=447e9),  # copies take NVLink-C2C
        card(pcie_gen=[1, 1, 5, 5, 1, 5, 1, 1]),  # a link that rests is judged at its best
        card(on_gpu(), pcie_width=4),  # hidden copies
    ],
)
def test_well(recording: Any) -> None:
    assert asked(RULE, recording) is None


def test_a_slot_that_is_not_known() -> None:
    readings = {name: value for name, value in BEST.items() if name != "pcie_gen_max"}
    assert asked(RULE, read(COPYING.recording(), 0, **{**readings, "pcie_gen": 3})) is None
