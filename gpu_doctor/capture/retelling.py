"""How the ledger is told later of events that were only noted down: one by one, at the times that were noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_doctor.capture.eventnotes import (
    BACK,
    BACKWARD,
    COPIED,
    DELIVERED,
    FORWARD_DONE,
    FORWARDS,
    GRADIENT,
    LEAF,
    OPTIMIZER_DONE,
    PAGED,
    SYNCED,
    ZEROING,
    Noted,
)
from gpu_doctor.recording.steps import PHASE_COUNT, SYNC

if TYPE_CHECKING:
    from gpu_doctor.capture.ledger import Ledger, Pull


def tell(ledger: Ledger, noted: Noted, pull: Pull, before: int, key: int = 0) -> None:
    """Tells the ledger of noted events, as if they happened now; what is still open stays in `ledger.back`.

    Args:
        ledger, noted: whom, and what. pull, key: whose ask, or which optimizer's step, was told last.
        before: the phase to go back to after that.
    """
    clock, given, fed, moved = ledger.clock, iter(noted.samples), iter(noted.inputs), iter(noted.moved)
    open_phases, open_keys, leaf = [before], [key], 0
    asked = pull
    for code in noted.codes:  # they were counted when they were noted
        if not isinstance(code, int):
            asked = code[0] if isinstance(code, tuple) else code
        elif code == DELIVERED:
            asked.delivered -= 1

    def at(ns: int) -> Callable[[], int]:
        return lambda: ns

    try:
        for code, ns in zip(noted.codes, noted.times, strict=True):
            ledger.clock = at(ns)
            if not isinstance(code, int):
                pull = code[0] if isinstance(code, tuple) else code
                open_phases.append(ledger.ask(pull, not isinstance(code, tuple)))
            elif code == DELIVERED:
                ledger.delivered(pull, next(given), open_phases.pop())
            elif code in FORWARDS:
                flags = code - FORWARDS[0]
                open_phases.append(ledger.forward(bool(flags & 1), bool(flags & 2), bool(flags & 4), next(fed)))
            elif code == FORWARD_DONE:
                ledger.forward_done(open_phases.pop())
            elif code == BACKWARD:
                open_phases.append(ledger.backward())
            elif code == GRADIENT:
                open_phases.append(ledger.gradient())
            elif code == ZEROING:
                open_phases.append(ledger.zeroing())
            elif code == BACK:
                ledger.switch(open_phases.pop())
            elif code == LEAF:
                leaf = ns
            elif code == SYNCED:
                ledger.carve(SYNC, ns - leaf)
            elif code in (COPIED, PAGED):
                ledger.copied(next(moved), code == PAGED, ns - leaf)
            elif code == OPTIMIZER_DONE:
                ledger.optimizer_done(open_keys.pop(), open_phases.pop())
            elif code < PHASE_COUNT:
                open_phases.append(ledger.switch(code))
            else:
                open_keys.append(code)
                open_phases.append(ledger.optimizer(code))
    finally:
        ledger.clock = clock
        ledger.back[:] = open_phases
