"""capped-clocks: a setting holds the clocks down, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import on_gpu, read

RULE = "capped-clocks"
HELD: dict[str, Any] = {
    "clock_limit_bits": 0x2,
    "sm_clock_mhz": 1410,
    "sm_clock_max_mhz": 1980,
    "gpu_util_pct": 95,
    "gpu_power_limit_w": 700,
    "gpu_power_default_w": 700,
}


def card(**changes: Any) -> Any:
    return read(on_gpu().recording(), 0, **{**HELD, **changes})


def test_sick() -> None:
    found = surely(RULE, card())
    assert found.cost_share == pytest.approx(1 - 1410 / 1980, abs=0.01)
    assert "nvidia-smi -rgc" in found.prescriptions[0].code


def test_a_lowered_power_limit() -> None:
    found = surely(RULE, card(clock_limit_bits=0x4, gpu_power_limit_w=350))
    assert "350 W of the card's 700 W" in found.headline and "-pl 700" in found.prescriptions[0].code


def test_locked_without_a_reason_given() -> None:
    assert surely(RULE, card(clock_limit_bits=0, sm_clock_mhz=900))


def test_well() -> None:
    assert asked(RULE, card(clock_limit_bits=0, sm_clock_mhz=1980)) is None
    assert asked(RULE, on_gpu()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_util_pct": 5},  # idle
        {"clock_limit_bits": 0x4},  # at its own power limit, as a busy card is
        {"clock_limit_bits": 0x40},  # hot: throttled says so
        {"sm_clock_mhz": 1830},  # a boost that is seldom reached
        {"clock_limit_bits": 0, "sm_clock_mhz": 1500},  # no reason, and not so low
    ],
)
def test_what_no_setting_did(change: dict[str, Any]) -> None:
    assert asked(RULE, card(**change)) is None
