"""shared-gpu: others compute on the card, or hold its memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import on_gpu, read

RULE = "shared-gpu"
ALONE: dict[str, Any] = {"gpu_memory_used_bytes": 41e9, "torch_reserved_bytes": 40e9, "gpu_util_pct": 95}


def card(**changes: Any) -> Any:
    return read(on_gpu().recording(), 0, **{**ALONE, **changes})


def test_sick() -> None:
    busy = card(other_processes=2, other_processes_bytes=10e9, other_processes_util_pct=40)
    found = surely(RULE, busy)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(0.4, abs=0.01)
    assert any("2 other processes" in one for one in found.evidence)


def test_memory_alone_is_a_risk() -> None:
    found = surely(RULE, card(other_processes=1, other_processes_bytes=30e9, other_processes_util_pct=0))
    assert found.kind == "hint" and found.risk and "38 %" in found.headline


def test_in_a_container_memory_that_nobody_here_holds() -> None:
    assert surely(RULE, card(gpu_memory_used_bytes=70e9)).risk


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"other_processes": 0, "other_processes_bytes": 0},
        {"other_processes": 3, "other_processes_bytes": 5e8, "other_processes_util_pct": 2},  # a desktop
        {"gpu_memory_used_bytes": 50e9, "other_processes": 0},  # a large context of its own
    ],
)
def test_well(change: dict[str, float]) -> None:
    assert asked(RULE, card(**change)) is None
