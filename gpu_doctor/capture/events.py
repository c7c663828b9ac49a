"""The event log of a run: a code, the host's time and an argument for each event that the taps record, in order.

A tap appends an event and goes on; `step_clock.py` interprets the events later, many at once. A tuple in one list is
the cheapest way to record an event that was found (columns, arrays and a queue to another thread all cost more).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, TypeAlias

Event: TypeAlias = tuple[int, int, Any]
"""Code, time in ns of the host clock, argument."""

(
    NEXT,
    NEXT_BLIND,
    BATCH,
    EXHAUSTED,
    OPENING,
    OPENED,
    CALLED,
    GRADIENT,
    DIFFERENTIATE,
    BACKED,
    ZERO,
    STEP,
    STEPPED,
    ABANDONED,
    PHASE,
    DONE,
    COPYING,
    COPIED,
    WAITING,
    SYNCED,
    CAME,
    BATCH_AT,
    COSTLY,
    OURS,
    CPU,
    BY_HAND,
    RESTART,
    PAUSED,
    MARK,
    REPLAY,
    REPLAYED,
    CALL,
) = range(32)
"""Codes of events. After each meaning stands the argument, a number, a key or a tuple of them, never a mutable object.

NEXT: the loop requests a batch; number of the iterator and key of the loader, see `sources.Pulled`.
NEXT_BLIND: as NEXT, while no gradients are recorded.
BATCH: the requested batch came; its number of samples, NaN if unknown.
EXHAUSTED: there is no further batch, or the request failed.
OPENING: `iter(loader)` begins; True if no gradients are recorded, and the loader's key if known by now.
OPENED: `iter(loader)` has ended; as NEXT, or None if no iterator was made.
CALL (and the seven codes after it, see `call_code`): the forward of an outermost module begins; the input's samples and
the module's id, or None.
CALLED: that forward has ended.
GRADIENT: a backward begins; the number of its loss if the loss is stored, else None.
DIFFERENTIATE: gradients are computed that are not used for training. BACKED: either kind of backward has ended.
ZERO: gradients are cleared.
STEP, STEPPED: an optimizer's step begins, has ended; the optimizer's id.
ABANDONED: the outermost running step of an optimizer raised.
PHASE: the loop enters a phase; the phase. DONE: a PHASE or a ZERO ends.
COPYING: a copy of a tensor to a device begins. COPIED: it has ended; `(bytes, pageable, details)`, None if it failed.
WAITING: the host starts to wait for the device. SYNCED: that wait has ended.
CAME: a tensor was copied to the host; details. BATCH_AT: addresses of the tensors of a batch.
COSTLY: a costly call has ended; `(kind, place, ns, bytes)`.
OURS: our own work has ended; its start in ns.
CPU: CPU time of the process by now, in ns.
BY_HAND: True if a backward makes gradients of parameters that no known optimizer owns, so the loop updates them by
hand; False if an optimizer owns them.
RESTART: another thread turned out to be the training thread.
PAUSED: a trial waited for the device between two steps, and the time belongs to neither; start and CPU time, in ns.
MARK: a mark was put into the device's queue; `(code of its event, Put, own ns)`, see `device_marks.py`.
REPLAY, REPLAYED: a captured graph is about to be launched again, was launched; only marks carry these codes.
"""
CODES: Final = CALL + 8
STARTS: Final = (
    *(NEXT, NEXT_BLIND, OPENING, GRADIENT, STEP, RESTART),
    *range(CALL, CODES),
)
"""Codes with which a loop can begin: whatever the cell did before is no part of a step."""
DUE: Final = 512
"""Number of events that are folded at once. It is below 700, at which Python collects garbage of the youngest
generation. Folding every 80 events cost 17 us a step more; folding 4000 at once saved nothing more."""
DUE_NS: Final = 200_000_000
"""Longest time between two folds, in ns: a view reads twice a second."""
FIRST_DUE: Final = 4
"""Number of events before a run's first fold; later folds wait for more. Models are to be found soon."""
CURRENT: Final = (COPYING, COPIED)
"""Codes whose marks go to the stream that copies; all others go to the compute stream."""
CPU_EVERY_NS: Final = 1_000_000
"""Shortest time between two readings of the CPU clock, in ns: each is a system call of about 1 us."""


def call_code(training: bool, grad: bool, trained: bool) -> int:
    """Returns the code of a forward.

    Args:
        training: True if the module is in training mode.
        grad: True if gradients are recorded.
        trained: True if an optimizer of this run owns the module's parameters.
    """
    return CALL + training + 2 * grad + 4 * trained


class Log:
    """Events that were not folded yet, and the state that a tap reads before it records one."""

    __slots__ = (
        *(
            "backing",
            "calling",
            "clock",
            "cpu_clock",
            "cpu_due_ns",
            "due",
            "due_ns",
            "ending",
            "events",
            "loss_at",
            "marker",
            "note",
            "own_ns",
            "pulled",
            "stack_samples",
            "stepped",
            "steps",
            "thread",
            "trains",
        ),
    )

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """`clock`: host clock, in ns."""
        self.clock = clock
        self.cpu_clock: Callable[[], int] = time.process_time_ns
        self.events: list[Event] = []
        """The events; always the same list object, as taps hold its `append`."""
        self.note = self.events.append
        self.thread = get_ident()
        """Id of the training thread; 0 = nothing is recorded any more."""
        self.due, self.due_ns = FIRST_DUE, 0
        """Number of events, and time in ns, from which on the next tap that may fold the log does."""
        self.cpu_due_ns = 0
        """Time from which on the CPU clock is to be read again, in ns."""
        self.ending = ""
        """Outcome with which the loop is to be left at its next step: `stopped`, `interrupted`, `budget-reached`, or
        empty = go on."""
        self.backing = 0
        """Number of backwards that are running on the training thread."""
        self.calling = 0
        """Number of forwards of outermost modules that are running on the training thread."""
        self.stepped = 0
        """Number of optimizer steps that have ended on the training thread."""
        self.trains = False
        """True once an optimizer has stepped on the training thread."""
        self.pulled = False
        """True if a batch came since the last optimizer step: the model's input need not tell the step's samples."""
        self.steps = 0
        """Requests so far, and backwards without a request: no fewer than the steps that have ended."""
        self.loss_at = 0
        """Value of `steps` from which on the next loss is to be stored."""
        self.stack_samples: list[Any] = []
        """Stack samples, which the line sampler appends on the poller's thread (see `found.StackSample`)."""
        self.marker: Any = None
        """The device's clock while steps are marked on the device, else None."""
        self.own_ns = 0
        """Time that folding the log and searching for models took on the training thread, in ns."""

    def taken(self) -> list[Event]:
        """Returns all events and empties the list, which stays the same object because taps hold its `append`."""
        events = self.events[:]
        del self.events[: len(events)]
        return events

    def ours(self, since: int) -> int:
        """Records that the training thread did our own work from `since` (ns) until now, and returns the time, in ns.

        If events were recorded meanwhile, only the time after the newest counts: a listener has recorded the rest.
        """
        now = self.clock()
        if self.events:
            since = max(since, self.events[-1][1])
        self.own_ns += now - since
        self.note((OURS, now, since))
        return now

    def mark(self, code: int, follow: bool = False) -> None:
        """Puts a mark for an event into the device's queue, if steps are marked: after a begin, before an end.

        A tap that runs in every step checks `marker` first, which is cheaper than this call.

        Args:
            code: the event's code.
            follow: True if the current stream is the compute stream.
        """
        marker = self.marker
        if marker is None:
            return
        own_ns = self.own_ns + marker.spent_ns
        put = marker.mark(follow, code in CURRENT)
        self.note((MARK, put.at_ns, (code, put, own_ns)))
