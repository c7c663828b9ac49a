"""What one event of our own costs on this machine now: the unit in which a run's overhead is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.eventnotes import Noted, notes
from gpu_doctor.capture.ledger import Ledger
from gpu_doctor.capture.step_table import StepTable

_CALIBRATION_ROUNDS: Final = 200
COLD: Final = 2.5
"""Between two events of a training loop our code leaves the processor's caches, and takes longer than here, where it
is called in a row: 51 us a step were measured in a loop whose taps take 13 to 18 us with warm caches
(benchmarks/README.md). That is three times as long; less is taken, as not all of the 51 were the events'."""


WRAPPED: Final = 3.0
"""Notes as dear as a noted event, with the wrapper of ours in which it is noted: loops over arrays and over two loaders
in a zip took 25.6 and 34 us a step more than bare (126 and 373 us, in turns); 8.5 and 11.9 us are the notes alone."""


def event_cost_ns(clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """What an event that the ledger is told of costs: a wrapped call around a switch there and back, halved, in ns."""
    return _cost_ns(Ledger(StepTable(capacity=2), clock).switch)


def note_cost_ns(clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """As `event_cost_ns`, of an event that is only noted down."""
    switch: Callable[[int], int] = notes(Noted(), clock, 1 << 30, lambda: None, lambda phase, ns: None)["switch"]
    return _cost_ns(switch)


def _cost_ns(switch: Callable[[int], int]) -> float:
    def bare(*args: Any, **kwargs: Any) -> None:
        return None

    def tapped(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() == 0:
            return None
        before = switch(0)
        try:
            return bare(*args, **kwargs)
        finally:
            switch(before)

    return COLD * max(_mean_ns(tapped) - _mean_ns(bare), 0.0) / 2


def _mean_ns(call: Callable[..., None]) -> float:
    begin = time.perf_counter_ns()
    for _ in range(_CALIBRATION_ROUNDS):
        call()
    return (time.perf_counter_ns() - begin) / _CALIBRATION_ROUNDS
