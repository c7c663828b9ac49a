"""What takes longer than it could is timed both ways after the run: by the calling thread's clock, and to an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu_doctor.capture.taps import both_ways
from gpu_doctor.capture.taps.both_ways import FEWEST, PATIENCE_S, ROUNDS, Clocks


class Machine:
    """One on whose clocks the two ways take so many CPU seconds, and the wall so many times as many."""

    def __init__(self, slow: float, fast: float, stretched: float = 1.0) -> None:
        self.now, self.calls, self.takes, self.stretched = 0.0, 0, (slow, fast), stretched

    @property
    def clocks(self) -> Clocks:
        return lambda: self.now * self.stretched, lambda: self.now

    def way(self, which: int) -> Callable[[], float]:
        def once() -> float:
            self.calls += 1
            self.now += self.takes[which]
            return self.takes[which]

        return once

    def longer_s(self) -> tuple[float, float, float]:
        return both_ways.longer_s(self.way(0), self.way(1), self.clocks)


def test_it_is_the_difference_of_rounds_by_turns() -> None:
    machine = Machine(3e-3, 1e-3)
    assert machine.longer_s() == pytest.approx((2e-3,) * 3) and machine.calls == 2 * (1 + ROUNDS)
    assert Machine(1e-3, 3e-3).longer_s() == (0.0, 0.0, 0.0)


def test_where_others_use_the_cores_it_is_stretched_as_the_steps_are() -> None:
    assert Machine(3e-3, 1e-3, stretched=2.5).longer_s() == pytest.approx((5e-3,) * 3)


def test_ways_that_take_long_get_fewer_rounds() -> None:
    machine = Machine(PATIENCE_S, 0.0)
    machine.longer_s()
    assert machine.calls == 2 * (1 + FEWEST)
