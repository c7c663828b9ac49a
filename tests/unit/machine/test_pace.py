"""How fast the machine was while a loop ran, and what a forecast makes of it."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.worker_costs import PACES, ROUND_S, handing_s, starting_s
from gpu_doctor.diagnosis.forecast.workers import taking_s
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.machine import pace as probe
from gpu_doctor.machine.probe import ProbeScope
from tests.support.recordings import Loop, read

LOOP = Loop(wait=6.0, fetch_cpu=6.0, forward=1.0, backward=1.0, optimizer=0.5, consumer_cpu=2.5, cores=2.0)
"""Fetching takes 6 of 8.5 ms: what one worker gains hangs on what it costs to hand a batch over."""


def at(ns: float, loop: Loop = LOOP) -> Vitals:
    """The loop on a machine whose rounds took so long."""
    return measure(read(loop.recording(), None, python_round_ns=ns))


def test_a_round_is_cpu_time_of_this_thread() -> None:
    took = [90, 60, 70]  # cold at first
    ticks = iter([at for one in took for at in (5_000, 5_000 + one * probe.ROUNDS)])
    assert probe.round_ns(lambda: next(ticks)) == 60.0
    assert 5.0 < min(probe.round_ns() for _ in range(20)) < 2_000.0


def test_a_clock_that_does_not_move_is_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    with probe.opened(ProbeScope(note=lambda text: None)) as reader:
        assert reader is not None
        ((metric, value),) = reader()
        assert metric.name == "python_round_ns" and value > 0
        monkeypatch.setattr(probe, "round_ns", lambda: 0.0)
        assert reader() == []


def test_on_a_slow_machine_handing_over_takes_longer_in_proportion() -> None:
    usual, slow = at(1e9 * ROUND_S), at(2e9 * ROUND_S)
    assert taking_s(slow) == pytest.approx(2 * taking_s(usual))
    assert taking_s(usual) == pytest.approx(handing_s(1.0, usual.batch_bytes or 0.0, usual.batch_tensors))
    assert taking_s(LOOP.vitals()) == pytest.approx(taking_s(usual))  # nobody timed it
    assert starting_s(slow, 2) == pytest.approx(2 * starting_s(usual, 2))
    gains = [found.speedup for one in (usual, slow) if (found := forecast(one, {"num_workers": 1})) is not None]
    assert gains[0] > 1.1 * gains[1]


def test_a_worker_is_not_advised_where_the_machine_is_too_slow_to_hand_its_batches_over() -> None:
    fast, slow = (forecast(at(ns), {"num_workers": 1}) for ns in (0.5e9 * ROUND_S, 3e9 * ROUND_S))
    assert fast is not None and fast.pays
    assert slow is not None and not slow.pays


def test_an_odd_pace_is_taken_for_another_python() -> None:
    usual = taking_s(LOOP.vitals())
    assert taking_s(at(1.0)) == pytest.approx(PACES[0] * usual)
    assert taking_s(at(1e4)) == pytest.approx(PACES[1] * usual)
