"""A tally sums up fetches, of which as many are metered as metering them allows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpu_doctor.capture.fetch.tally import COST_SHARE, FIRST_FETCHES, MOST_SKIPPED, RECENT, SLOT_BYTES, Tally

COST_S, NOTHING = 2e-5, (0.0, 0.0, 0.0)


def counted(walls_s: list[float], cost_s: float = COST_S) -> tuple[Tally, int]:
    """The tally of so long fetches, and how many of them were metered."""
    tally, metered = Tally(bytearray(SLOT_BYTES)), 0
    for wall_s in walls_s:
        if tally.to_skip:
            tally.to_skip -= 1
        else:
            tally.add(wall_s, (0.5 * wall_s, 0.0, 0.0), NOTHING, cost_s)
            metered += 1
    return tally, metered


def test_the_first_fetches_and_all_long_ones_are_metered() -> None:
    assert counted([1e-6] * FIRST_FETCHES)[1] == FIRST_FETCHES
    assert counted([2.0 * COST_S / COST_SHARE] * 500)[1] == 500


@pytest.mark.parametrize("wall_s", [1e-3, 2e-4])
def test_of_short_fetches_so_many_are_metered_as_cost_their_share(wall_s: float) -> None:
    tally, metered = counted([wall_s] * 20_000)
    assert metered * COST_S == pytest.approx(COST_SHARE * 20_000 * wall_s, rel=0.3)
    assert tally.sums.batches == pytest.approx(20_000, abs=2 * MOST_SKIPPED + 1)
    assert tally.sums.wall_s / tally.sums.batches == pytest.approx(wall_s)


def test_where_metering_takes_nothing_by_the_clock_every_fetch_is_metered() -> None:
    assert counted([1e-6] * 500, cost_s=0.0)[1] == 500


def test_few_slow_fetches_among_many_fast_ones_keep_their_part() -> None:
    slow = [0.06 if at % 15 == 14 else 5e-5 for at in range(3000)]
    tally, _ = counted(slow)
    assert tally.sums.wall_s / tally.sums.batches == pytest.approx(sum(slow) / len(slow), rel=0.1)


def test_a_tally_keeps_the_recent_fetches_and_all_sums() -> None:
    tally = Tally(bytearray(SLOT_BYTES))
    walls = [float(i + 1) for i in range(RECENT + 5)]
    for wall_s in walls:
        tally.add(wall_s, (0.5, 0.25, 0.125), (0.0, 8.0, 4.0), 0.0)
    count = len(walls)
    assert tally.sums[:5] == (count, sum(walls), 0.5 * count, 0.25 * count, 0.125 * count)
    assert (tally.sums.read_bytes, tally.sums.stored_bytes) == (8.0 * count, 4.0 * count)
    np.testing.assert_array_equal(np.sort(tally.recent), walls[5:])


def test_only_the_fetches_that_read_from_the_storage_count_as_such() -> None:
    tally = Tally(bytearray(SLOT_BYTES))
    for wall_s, stored in ((0.5, 0.0), (0.25, 4096.0), (1.0, 0.0)):
        tally.add(wall_s, (0.0, 0.0, 0.0), (0.0, 8192.0, stored), 0.0)
    assert (tally.sums.stored_s, tally.sums.wall_s, tally.sums.stored_bytes) == (0.25, 1.75, 4096.0)
    tally.add(1.0, (0.0, 0.0, 0.0), (0.0, 8192.0, math.nan), 0.0)
    assert math.isnan(tally.sums.stored_s) and tally.sums.read_bytes == 4 * 8192.0
