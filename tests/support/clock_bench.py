"""The step clock on a clock that moves only when told to."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_doctor.capture.events import (
    BACKED,
    BATCH,
    CALLED,
    CPU,
    EXHAUSTED,
    GRADIENT,
    NEXT,
    NEXT_BLIND,
    STEP,
    STEPPED,
    SYNCED,
    WAITING,
    call_code,
)
from gpu_doctor.capture.sources import Pulled, Source
from gpu_doctor.capture.step_clock import StepClock
from gpu_doctor.capture.step_table import DEVICE_COLUMNS, StepTable
from gpu_doctor.recording import PHASES, Steps
from gpu_doctor.recording.steps import STEP_COLUMNS

MS = 1_000_000


class Bench:
    """A step clock with a clock that only moves when told to, and the moves of a loop in milliseconds."""

    def __init__(self, sync_measured: bool = False, event_ns: int = 0) -> None:
        self.now = 0
        self.table = StepTable()
        self.clock = StepClock(0, sync_measured, event_ns)
        self.ends: list[int] = []

    def spend(self, ms: float) -> None:
        self.now += round(ms * MS)

    def note(self, code: int, arg: Any = None) -> None:
        """An event, folded at once: how events are cut into blocks makes no difference (see the property tests)."""
        self.clock.fold([(code, self.now, arg)])
        for step in self.clock.steps:
            self.table.append(step.values)
            self.ends.append(step.end_ns)
        self.clock.steps.clear()

    def source(self, pulled: Pulled) -> Source:
        """What the clock knows of an iterator."""
        return self.clock.sources.of(pulled, self.now)

    def pull(self, source: Pulled, wait: float = 1, samples: float = 8, grad: bool = True) -> None:
        self.note(CPU, self.now // 2)
        self.note(NEXT if grad else NEXT_BLIND, source)
        self.spend(wait)
        self.note(BATCH, samples)

    def exhaust(self, source: Pulled, wait: float = 0) -> None:
        self.note(CPU, self.now // 2)
        self.note(NEXT, source)
        self.spend(wait)
        self.note(EXHAUSTED)

    def forward(self, ms: float = 2, training: bool = True, grad: bool = True, samples: float = 8) -> None:
        self.note(call_code(training, grad, True), (samples, 1))
        self.spend(ms)
        self.note(CALLED)

    def backward(self, ms: float = 3) -> None:
        self.note(GRADIENT)
        self.spend(ms)
        self.note(BACKED)

    def optimizer(self, ms: float = 4, key: int = 1) -> None:
        self.note(STEP, key)
        self.spend(ms)
        self.note(STEPPED, key)

    def wait(self, ms: float) -> None:
        """The host waits for a device."""
        self.note(WAITING)
        self.spend(ms)
        self.note(SYNCED)

    def train(self, key: int = 1) -> None:
        self.forward()
        self.spend(0.5)
        self.backward()
        self.optimizer(key=key)
        self.spend(0.25)

    def close(self) -> Steps:
        self.clock.no_more_requests()
        tail = self.clock.finish()
        for step in self.clock.steps:
            self.table.append(step.values)
        self.table.finish()
        if tail:
            self.table.extend(self.clock.tail(tail))
        return self.table.steps()


def sums(steps: Steps) -> dict[str, float]:
    """Milliseconds per phase that are not zero."""
    found = {phase: float(np.nansum(getattr(steps, f"{phase}_s"))) * 1e3 for phase in PHASES}
    found["other"] = float(steps.other_s.sum()) * 1e3
    found["ours"] = float(np.nansum(steps.ours_s)) * 1e3
    return {phase: round(ms, 6) for phase, ms in found.items() if round(ms, 6)}


def row(**values: float) -> list[float]:
    """A row with a few columns set; the device's are not measured, as in a fresh step."""
    blank = {"count": 1.0, **dict.fromkeys(DEVICE_COLUMNS, np.nan)}
    return [{**dict.fromkeys(STEP_COLUMNS, 0.0), **blank, **values}[name] for name in STEP_COLUMNS]
