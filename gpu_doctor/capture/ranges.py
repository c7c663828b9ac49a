"""Reports the phases of a loop as ranges to another tool, such as NVTX or torch.profiler, while they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gpu_doctor.capture import events
from gpu_doctor.capture.events import CALL, CODES, Event, Log
from gpu_doctor.recording.steps import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, PHASE_NAMES, SYNC, TRANSFER

_BEGINS: Final = {
    events.NEXT: DATA_WAIT,
    events.NEXT_BLIND: DATA_WAIT,
    events.OPENING: DATA_WAIT,
    events.GRADIENT: BACKWARD,
    events.DIFFERENTIATE: BACKWARD,
    events.STEP: OPTIMIZER,
    events.ZERO: OPTIMIZER,
    events.COPYING: TRANSFER,
    events.WAITING: SYNC,
    **dict.fromkeys(range(CALL, CODES), FORWARD),
}
_ENDS: Final = frozenset(
    {
        *(events.BATCH, events.EXHAUSTED, events.OPENED, events.BACKED, events.STEPPED),
        *(events.DONE, events.COPIED, events.SYNCED, events.CALLED),
    }
)


class Ranges(Protocol):
    """A tool that takes ranges; they nest, and all of them run on the training thread."""

    def begin(self, name: str) -> None:
        """Begins a range inside the open ones."""

    def end(self) -> None:
        """Ends the innermost open range."""


def follow(log: Log, ranges: Ranges) -> Callable[[], None]:
    """Begins and ends a range for each phase that a run records; to be called before the taps are on.

    Args:
        log: the run's event log.
        ranges: the tool that takes the ranges.

    Returns:
        A function that ends all open ranges, for the run's end.
    """
    plain, opened = log.events.append, list[int]()
    """Codes of the events that began the open ranges, outermost first."""

    def note(event: Event) -> None:
        """Records the event, and begins or ends the range of its phase."""
        plain(event)
        code = event[0]
        if code in _BEGINS or code == events.PHASE:
            opened.append(code)
            ranges.begin(PHASE_NAMES[event[2] if code == events.PHASE else _BEGINS[code]])
        elif code in _ENDS and opened:
            opened.pop()
            ranges.end()
        elif code == events.ABANDONED:  # the outermost open step raised, so every range inside it ends
            while events.STEP in opened:
                opened.pop()
                ranges.end()

    def close() -> None:
        while opened:
            opened.pop()
            ranges.end()

    log.note = note
    return close
