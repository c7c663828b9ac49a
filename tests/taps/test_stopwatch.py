"""The CUDA clock reuses its events and never waits; the ledger has it while the tap is on. GPU: events stand in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from one_tap import on

from gpu_doctor.recorder import Recorder
from gpu_doctor.taps.stopwatch import CudaClock, tap


class Event:
    """Stands in for torch.cuda.Event; passed as soon as recorded, one millisecond after the one before."""

    made = 0
    recorded = 0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        Event.made += 1
        self.at_ms = 0

    def record(self) -> None:
        """Puts it into the queue."""
        Event.recorded += 1
        self.at_ms = Event.recorded

    def query(self) -> bool:
        """Passed."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        return end.at_ms - self.at_ms

    def synchronize(self) -> None:
        """Would wait."""
        pytest.fail("waited for the device")


@pytest.fixture(autouse=True)
def _events(monkeypatch: pytest.MonkeyPatch) -> None:
    Event.made = Event.recorded = 0
    monkeypatch.setattr(torch.cuda, "Event", Event)


def on_cuda() -> Any:
    """An optimizer over a parameter that says it is on a GPU."""
    return SimpleNamespace(param_groups=[{"params": [SimpleNamespace(is_cuda=True)]}])


def test_events_are_reused() -> None:
    clock = CudaClock()
    for _ in range(5):
        begin, end = clock.mark(), clock.mark()
        assert clock.done(end)
        assert clock.seconds(begin, end) == pytest.approx(0.001)
        clock.free(begin)
        clock.free(end)
    assert Event.made == 2
    assert Event.recorded == 10


def test_the_ledger_has_a_device_clock_only_while_the_tap_is_on() -> None:
    recorder = Recorder()
    with on(tap, recorder) as scope:
        assert recorder.ledger.marks is None
        scope.optimized[0](on_cuda())
        marks = recorder.ledger.marks
        assert marks is not None
        scope.optimized[0](on_cuda())
        assert recorder.ledger.marks is marks
    assert recorder.ledger.marks is None


def test_parameters_in_main_memory_need_none() -> None:
    recorder = Recorder()
    with on(tap, recorder) as scope:
        scope.optimized[0](torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))
        assert recorder.ledger.marks is None


def test_a_loop_with_the_clock_reads_every_step_but_the_first() -> None:
    recorder = Recorder()
    ledger = recorder.ledger
    with on(tap, recorder) as scope:
        scope.optimized[0](on_cuda())
        for _ in range(50):
            ledger.forward_done(ledger.forward(True, True, True, 8.0))
            ledger.optimizer_done(1, ledger.optimizer(1))
        ledger.finish()
    steps = recorder.table.steps()
    assert steps.device_steps.sum() == 49
    assert Event.made <= 8
