"""What one event of our own costs on this machine now: the unit in which a run's overhead is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_doctor.ledger import Ledger
from gpu_doctor.steptable import StepTable

_CALIBRATION_ROUNDS: Final = 200


def event_cost_ns(clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """What one tap event costs on this machine now: a wrapped call around a switch there and back, halved, in ns."""
    ledger = Ledger(StepTable(capacity=2), clock)
    switch = ledger.switch

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

    costs: Mapping[Callable[..., None], float] = {}
    costs = {call: _mean_ns(call) for call in (bare, tapped)}
    return max(costs[tapped] - costs[bare], 0.0) / 2


def _mean_ns(call: Callable[..., None]) -> float:
    begin = time.perf_counter_ns()
    for _ in range(_CALIBRATION_ROUNDS):
        call()
    return (time.perf_counter_ns() - begin) / _CALIBRATION_ROUNDS
