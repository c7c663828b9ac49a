"""What a stretch drew from batches that lay ready before it is taken off its speed."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.compare.stock import made_share
from tests.support.runs_compared import WORKERS, fed

AHEAD = 4
STEPS = 48


def falling(by: int, over: int, n: int = STEPS) -> list[float]:
    """So many batches used up in so many steps."""
    return [by * max(1.0 - i / over, 0.0) for i in range(n)]


@pytest.mark.parametrize("over", [12, 24, 48])
def test_what_the_stock_fell_by_was_not_made_meanwhile(over: int) -> None:
    made = made_share(fed(falling(16, over)), 0.0, float(STEPS))
    assert made == pytest.approx(1.0 - 16 / STEPS, abs=0.08)


def test_a_stock_that_rises_or_stays_leaves_the_loops_own_pace() -> None:
    for ready in ([3.0] * STEPS, [i / 3 for i in range(STEPS)], [float(i % WORKERS) for i in range(STEPS)]):
        assert made_share(fed(ready), 0.0, float(STEPS)) == 1.0


def test_a_stretch_that_was_all_stock_has_a_pace_that_can_be_compared() -> None:
    begin, used = [0.01] * 5, fed([64.0] * 5 + falling(64, 20, 48), [0.004] * 53)
    assert 0.0 < made_share(used, 5.0, 53.0) < 0.1
    found = compare([fed([0.0] * 53, begin + [0.01] * 48)] * 2, [used] * 2)
    assert found.speedup is not None and found.speedup < 1.0


def test_the_batches_of_two_loaders_are_counted_apart() -> None:
    both = fed(falling(16, 24))
    both.steps.batches[:] = 2.0
    (fetch,) = both.fetches
    zipped = dataclasses.replace(both, fetches=(dataclasses.replace(fetch, delivered=STEPS),))
    assert made_share(zipped, 0.0, 2.0 * STEPS) == made_share(fed(falling(16, 24)), 0.0, float(STEPS)) < 0.8


def test_where_nobody_counted_nothing_is_taken_off() -> None:
    plain = fed([0.0] * STEPS)
    assert made_share(dataclasses.replace(plain, fetches=()), 0.0, float(STEPS)) == 1.0
    assert made_share(fed([], []), 0.0, 0.0) == 1.0
    assert made_share(fed(falling(16, 24), workers=0), 0.0, float(STEPS)) == 1.0


def test_a_loop_that_lives_on_its_stock_is_no_faster_than_its_workers() -> None:
    """Workers make a batch in 10 ms. The candidate's 16 prefetched ones go in 4 ms each, then it waits too."""
    begin = [0.01] * 5
    quick = begin + [0.004] * 24 + [0.01] * 24
    bases = [fed([0.0] * 53, [0.01] * 53) for _ in range(2)]
    candidates = [fed([16.0] * 5 + falling(16, 24, 48), quick) for _ in range(2)]
    found = compare(bases, candidates)
    assert found.speedup == pytest.approx(1.0, abs=0.08)
    whole = compare(bases, [dataclasses.replace(one, fetches=()) for one in candidates])
    assert whole.speedup is not None and whole.speedup > 1.35


@pytest.mark.parametrize("until", [2.0, float(WORKERS)])
def test_of_a_stretch_that_is_over_before_all_workers_have_delivered_nothing_is_taken_off(until: float) -> None:
    assert made_share(fed(falling(16, 4)), 0.0, until) == 1.0
    assert made_share(fed(falling(16, 4)), 100.0, 200.0) == 1.0, "nobody looked meanwhile"
