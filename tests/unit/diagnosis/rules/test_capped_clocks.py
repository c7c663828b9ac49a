"""capped-clocks: a setting holds the clocks down, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import READINGS, on_gpu, read

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
    assert found.kind == "at-most" and found.cost_share == pytest.approx(1 - 1410 / 1980, abs=0.01)
    assert "nvidia-smi -rgc" in found.prescriptions[0].code


def test_a_lowered_power_limit() -> None:
    found = surely(RULE, card(clock_limit_bits=0x4, gpu_power_limit_w=350))
    assert "350 W" in found.headline and "700 W" in found.headline and "-pl 700" in found.prescriptions[0].code


def test_locked_without_a_reason_given() -> None:
    assert surely(RULE, card(clock_limit_bits=0, sm_clock_mhz=900))


@pytest.mark.parametrize(
    "change",
    [
        {"clock_limit_bits": 0, "sm_clock_mhz": 1980},
        {"gpu_util_pct": 5},  # idle
        {"clock_limit_bits": 0x4},  # at its own power limit, as a busy card is
        {"clock_limit_bits": 0x40},  # hot: throttled says so
        {"sm_clock_mhz": 1830},  # a boost that is seldom reached
        {"clock_limit_bits": 0, "sm_clock_mhz": 1500},  # no reason, and not so low
        {"clock_limit_bits": 0, "sm_clock_mhz": 900, "gpu_util_pct": 45},  # a half busy card, without a reason
    ],
)
def test_well(change: dict[str, Any]) -> None:
    assert asked(RULE, card(**change)) is None


PAUSES = [i % 2 == 0 for i in range(READINGS)]
"""Every second reading falls into a pause: NVML's utilization is of the last second, the clock of the moment."""


def test_clocks_of_a_pause_do_not_count() -> None:
    mixed = {
        "clock_limit_bits": [0x1 if idle else 0x0 for idle in PAUSES],
        "sm_clock_mhz": [345.0 if idle else 1980.0 for idle in PAUSES],
    }
    assert asked(RULE, card(**mixed)) is None
    held = {**mixed, "clock_limit_bits": [0x1 if idle else 0x2 for idle in PAUSES]}
    assert asked(RULE, card(**held)) is None, "held at the maximum"
    low = {**held, "sm_clock_mhz": [345.0 if idle else 1410.0 for idle in PAUSES]}
    assert surely(RULE, card(**low)).cost_share == pytest.approx(1 - 1410 / 1980, abs=0.01)


def test_clocks_of_an_idle_second_do_not_count() -> None:
    mixed = {
        "gpu_util_pct": [4.0 if idle else 95.0 for idle in PAUSES],
        "clock_limit_bits": 0,
        "sm_clock_mhz": [345.0 if idle else 1980.0 for idle in PAUSES],
    }
    assert asked(RULE, card(**mixed)) is None


def test_whether_a_mig_slice_is_busy_is_not_known() -> None:
    recording = card()
    series = tuple(one for one in recording.series if one.metric.name != "gpu_util_pct")
    assert asked(RULE, replace(recording, series=series)) is None
