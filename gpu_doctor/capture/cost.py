"""What watching a run may cost: one budget for the taps and for our own threads, shared out while the run goes on.

Most taps rest by themselves where steps are short and repeat (see `rests`). What they then still do comes first: what
it leaves of the budget is for the threads. Each says what it would take at its usual pace; where that is too much
together, all go slower by the same factor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.capture.eventnotes import Noted, notes
from gpu_doctor.capture.ledger import Ledger
from gpu_doctor.capture.step_table import StepTable

BUDGET_SHARE: Final = 0.01
"""Own cost over the run's wall-clock, taps and threads together (the aim of benchmarks/overhead.py)."""
LEAST_SHARE: Final = 0.002
"""What the threads are left in any case, so that plots move and lines are seen: two milliseconds of a second."""
WINDOW_S: Final = 0.5
"""The taps' cost is looked at over so long: of a loop that has just begun, not of what the cell did before."""
SEARCHED_SHARE: Final = 0.1
"""Looking for models is done at the begin of a loop, as a rule: it is said where it does not end with that."""
WORTH_SAYING_S: Final = 1.0
"""Of a shorter loop the first steps, which cost more, are too large a part, and nobody waits for it."""
_BLEND: Final = 0.3
_CALIBRATION_ROUNDS: Final = 200
COLD: Final = 2.5
"""Between two events of a training loop our code leaves the processor's caches, and takes longer than here, where it
is called in a row: 51 us a step were measured in a loop whose taps take 13 to 18 us with warm caches
(benchmarks/README.md). That is three times as long; less is taken, as not all of the 51 were the events'."""


WRAPPED: Final = 3.0
"""Notes as dear as a noted event, with the wrapper of ours in which it is noted: loops over arrays and over two loaders
in a zip took 25.6 and 34 us a step more than bare (126 and 373 us, in turns); 8.5 and 11.9 us are the notes alone."""


class Governor:
    """The budget of one run. Asked by the threads themselves, each in its own name; nobody waits for anybody."""

    def __init__(self, tapped_s: Callable[[], float], elapsed_s: Callable[[], float]) -> None:
        """Nothing is measured before the first question.

        Args:
            tapped_s: what the taps have cost so far, in host seconds. elapsed_s: of the run so far.
        """
        self._tapped_s, self._elapsed_s = tapped_s, elapsed_s
        self._seen = 0.0, 0.0
        self._wanted: dict[str, float] = {}
        self._taps_share: float | None = None

    @property
    def taps_share(self) -> float:
        """Part of the wall-clock that the taps take now."""
        at, tapped = self._elapsed_s(), self._tapped_s()
        last_at, last_tapped = self._seen
        if at - last_at >= WINDOW_S:
            self._seen = at, tapped
            now = max(tapped - last_tapped, 0.0) / (at - last_at)
            before = self._taps_share
            self._taps_share = now if before is None else before + _BLEND * (now - before)
        return self._taps_share or 0.0

    def allowed(self, who: str, wanted: float) -> float:
        """The part of one core that a thread may take.

        Args:
            who: asks. wanted: what it would take at its usual pace.

        Returns:
            At least `wanted` where all that is wanted fits, else less.
        """
        self._wanted[who] = max(wanted, 0.0)
        room = max(BUDGET_SHARE - self.taps_share, LEAST_SHARE)
        total = sum(self._wanted.copy().values())
        if total <= room:
            return room - (total - self._wanted[who])
        return room * self._wanted[who] / total


def too_dear(tapped_s: float, loop_s: float, steps: int, searched_s: float = 0.0) -> str:
    """A sentence where the taps alone cost more than the budget, which nothing can be done about; else empty.

    Args:
        tapped_s: what they cost. loop_s: wall-clock of all steps. steps: how many there were.
        searched_s: what looking for the models of new optimizers took, of the same wall-clock.
    """
    if loop_s >= WORTH_SAYING_S and searched_s > SEARCHED_SHARE * loop_s:
        spent = formatting.share(searched_s / loop_s)
        return f"gpu_doctor spent {spent} of this loop finding the models of its optimizers."
    if steps < 1 or loop_s < WORTH_SAYING_S or tapped_s <= BUDGET_SHARE * loop_s:
        return ""
    took = formatting.seconds(loop_s / steps)
    return f"Recording takes about {formatting.share(tapped_s / loop_s)} of this loop: its steps take only {took}."


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
