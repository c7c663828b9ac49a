"""throttled: the clock that heat or power takes away, priced by the ratio of the clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from tests.support.found import asked, surely
from tests.support.recordings import READINGS, on_gpu, read

RULE = "throttled"
HALF = [i >= READINGS // 2 for i in range(READINGS)]
HOT = {
    "clock_limit_bits": [0x20 if hot else 0 for hot in HALF],
    "sm_clock_mhz": [990.0 if hot else 1980.0 for hot in HALF],
    "sm_clock_max_mhz": 1980,
    "gpu_temperature_c": [92.0 if hot else 70.0 for hot in HALF],
    "gpu_util_pct": 95,
}


def test_sick() -> None:
    recording = read(on_gpu().recording(), 0, **HOT)  # type: ignore[arg-type]
    found = surely(RULE, recording)
    assert found.kind == "at-most"
    assert found.cost_share == pytest.approx(0.25, abs=0.03), "half of the time at half the clock"
    assert "software thermal slowdown" in found.headline and any("92 °C" in one for one in found.evidence)
    assert [one.rule for one in diagnose(recording).findings] == [RULE]


@pytest.mark.parametrize(
    "change",
    [
        {"clock_limit_bits": 0, "sm_clock_mhz": 1980},
        {"clock_limit_bits": 0x1},  # it idles
        {"clock_limit_bits": 0x4},  # the power limit of a busy card
        {"clock_limit_bits": 0x100},
        {"gpu_util_pct": 3},  # an idle card lowers its clocks by itself
    ],
)
def test_well(change: dict[str, float]) -> None:
    assert asked(RULE, read(on_gpu().recording(), 0, **{**HOT, **change})) is None  # type: ignore[arg-type]


def test_another_cards_heat_is_not_this_ones() -> None:
    assert asked(RULE, read(on_gpu().recording(), 1, **HOT)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [True, False])
def test_reasons_of_an_idle_card_do_not_count(known: bool) -> None:
    """It is hot and slow in the pauses between bursts; at work it is at its best."""
    util = [5.0 if hot else 95.0 for hot in HALF]
    recording = read(on_gpu().recording(), 0, **{**HOT, "gpu_util_pct": util})  # type: ignore[arg-type]
    if not known:  # a MIG slice has no utilization
        series = tuple(one for one in recording.series if one.metric.name != "gpu_util_pct")
        recording = replace(recording, series=series)
    assert asked(RULE, recording) is None


def test_the_clock_of_a_pause_is_not_the_throttled_one() -> None:
    idle = [i % 2 == 0 for i in range(READINGS)]
    bits = [0x21 if rests else 0x20 for rests in idle]
    clocks = [345.0 if rests else 990.0 for rests in idle]
    recording = read(on_gpu().recording(), 0, **{**HOT, "clock_limit_bits": bits, "sm_clock_mhz": clocks})  # type: ignore[arg-type]
    assert surely(RULE, recording).cost_share == pytest.approx(0.5, abs=0.01)
