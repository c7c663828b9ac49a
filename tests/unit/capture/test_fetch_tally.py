"""Which fetches are metered in full, where a few slow ones lie among many fast ones."""

from __future__ import annotations

from gpu_doctor.capture.fetch.tally import KNOWN, TALLY_BYTES, Tally

FAST_S, SLOW_S, LONG_S = 5e-5, 0.06, 2e-4


def tally(slow: bool) -> Tally:
    """Of as many fast fetches as it takes to know them, with each fifteenth slow or none."""
    found = Tally(bytearray(TALLY_BYTES), slow_s=LONG_S)
    for at in range(2 * KNOWN):
        found.add(SLOW_S if slow and at % 15 == 14 else FAST_S)
    return found


def test_where_few_slow_fetches_are_most_of_the_time_every_fetch_is_metered() -> None:
    found = tally(slow=True)
    found.put([FAST_S])
    assert (found.left, found.weight) == (0, 1)


def test_where_all_are_fast_one_in_many_is() -> None:
    found = tally(slow=False)
    found.put([FAST_S])
    assert found.left > 0 and found.weight > 1


def test_counts_of_fast_fetches_alone_are_none_of_the_slow_ones() -> None:
    found = tally(slow=True)
    for _ in range(10):
        found.tell(FAST_S, (4e-5, 0.0, 0.0, 1e-5))
    assert not found.sums.counted_stand_for_all
    found.tell(SLOW_S, (0.0, 0.0, 0.0, 1e-5))
    assert found.sums.counted_stand_for_all
