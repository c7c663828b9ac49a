"""The arithmetic behind figures that are taken in turns."""

from __future__ import annotations

import pytest

from tests.support.turns import over, scaled


def test_each_turn_is_compared_with_itself() -> None:
    # A machine that is twice as slow for half of the turns: both sides are.
    found = over([1.0, 2.0, 1.0, 2.0, 1.0], [1.01, 2.02, 1.01, 2.02, 1.01])
    assert (found.median, found.low, found.high) == pytest.approx((0.01, 0.01, 0.01))
    assert str(found) == "+1.00 % (+1.00 to +1.00 %)"


def test_one_turn_that_was_disturbed_does_not_count() -> None:
    found = over([1.0] * 9, [1.0] * 8 + [3.0])
    assert found.median == 0.0 and found.high == 0.0


def test_too_few_turns_say_nothing() -> None:
    with pytest.raises(ValueError, match="3 and 3 turns"):
        over([1.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match="4 and 5 turns"):
        over([1.0] * 4, [1.0] * 5)


def test_sizes_scale() -> None:
    assert scaled(100, 0.002, 0.005) == 250
    assert scaled(100, 1.0, 0.001, least=8) == 8
