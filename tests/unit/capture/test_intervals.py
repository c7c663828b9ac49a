"""What gpu_doctor took of the host's time is taken off the device's idle time, where it made the device wait."""

from __future__ import annotations

import pytest

from gpu_doctor.capture.gpu.intervals import Interval, Tally
from gpu_doctor.recording.steps import DATA_WAIT, FORWARD, OTHER, SYNC


def interval(phase: int, begin: float, end: float, lag: float = 0.0, own: float = 0.0, **more: float) -> Interval:
    """Of so many milliseconds."""
    host, evaluation = more.get("host", end - begin), bool(more.get("evaluation"))
    return Interval(phase, 1e-3 * begin, 1e-3 * end, 1e-3 * host, 1e-3 * lag, 1e-3 * own, evaluation)


def waited_ms(*intervals: Interval) -> float:
    """Exposed wait."""
    tally = Tally(())
    for one in intervals:
        tally.add(one)
    return 1e3 * tally.values()[2]


def test_what_we_took_while_the_device_worked_makes_it_wait_later() -> None:
    ahead = interval(FORWARD, 0, 5, lag=4, own=0.5, host=1)
    assert waited_ms(ahead, interval(DATA_WAIT, 5, 8, host=7)) == pytest.approx(2.5)


def test_what_we_took_before_the_host_waited_for_the_device_costs_nothing() -> None:
    ahead = interval(FORWARD, 0, 5, lag=4, own=0.5, host=1)
    sync = interval(SYNC, 5, 5.01, host=4)
    assert waited_ms(ahead, sync, interval(DATA_WAIT, 5.01, 8.01)) == pytest.approx(3.0)


def test_what_we_took_in_an_evaluation_costs_the_next_step_nothing() -> None:
    held_out = interval(OTHER, 0, 500, own=3, evaluation=1)
    assert waited_ms(held_out, interval(DATA_WAIT, 500, 503)) == pytest.approx(3.0)


def test_what_we_took_of_a_launch_bound_phase_is_no_part_of_a_wait_behind_it() -> None:
    launched = interval(FORWARD, 0, 5, own=0.5)
    assert waited_ms(launched, interval(DATA_WAIT, 5, 8)) == pytest.approx(3.0)
