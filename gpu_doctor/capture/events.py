"""The one log of a run: what the taps note, as a code, the host's time and an argument, in its order.

A tap appends and goes on; what the events mean is worked out later, many at once, by `step_clock.py`. A tuple in one
list is the cheapest note that was found (columns, arrays and a queue to another thread all cost a loop more).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, TypeAlias

Event: TypeAlias = tuple[int, int, Any]
"""Code, ns of the host clock, argument."""

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
"""What each stands for, and its argument: a number, a key, or a tuple of them; no object that anybody changes.

NEXT: the loop asks a loader; the iterator's number and the loader's key, see `sources.Pulled`. NEXT_BLIND: as NEXT,
while no gradients are recorded. BATCH: what was asked for is there; how many samples it holds, NaN if unknown.
EXHAUSTED: there is no further batch, or asking for it failed. OPENING: `iter(loader)` begins; whether no gradients are
recorded, and the loader's key if it is known by now. OPENED: it has ended; as NEXT, None where no iterator was made.
CALL (and the seven codes after it, see `call_code`): an outermost module's forward begins; None, or its samples and the
module's id. CALLED: it has ended. GRADIENT: a backward begins; the number of its loss if that is kept, else None.
DIFFERENTIATE: gradients are made of which nothing is learned. BACKED: either has ended. ZERO: gradients are cleared.
STEP, STEPPED: an optimizer's step begins, has ended; its id. ABANDONED: the outermost open step of an optimizer raised.
PHASE: the loop goes over to a phase. DONE: ends a PHASE or a ZERO.
COPYING: a tensor is about to be copied to a device. COPIED: it was; `(bytes, pageable, details)`, None if it failed.
WAITING: the host is about to wait for the device. SYNCED: it has. CAME: a tensor was copied to the host; its details.
BATCH_AT: where the tensors of a batch lie.
COSTLY: a costly call has ended; `(kind, place, ns, bytes)`. OURS: the time since the event before was our own work.
CPU: CPU ns of the process by now. BY_HAND: a backward makes gradients of what no known optimizer owns, so the loop
changes its parameters itself; false = an optimizer owns it.
RESTART: another thread turned out to be the training thread.
PAUSED: a trial waited for the device between two steps, which is neither's time; since when, and its CPU ns.
MARK: a mark was put into the device's queue; `(code of its event, Put, own ns)`, see `device_marks.py`.
REPLAY, REPLAYED: marks alone carry these: a captured graph is launched again, has been launched.
"""
CODES: Final = CALL + 8
STARTS: Final = (
    *(NEXT, NEXT_BLIND, OPENING, GRADIENT, STEP, RESTART),
    *range(CALL, CODES),
)
"""The loop begins with one of these: whatever the cell did before is no part of a step."""
DUE: Final = 512
"""Events that are folded at once. Fewer than 700, at which Python looks for garbage in what was made last. To fold
every 80 events cost 17 us a step more; to fold 4000 at once saved nothing more."""
DUE_NS: Final = 200_000_000
"""And at least so often: a view asks twice a second."""
FIRST_DUE: Final = 4
"""At the begin of a run the log is folded after so few, then ever more: models are to be found soon."""
CURRENT: Final = (COPYING, COPIED)
"""These marks go to the stream that copies, the others to the compute stream."""
CPU_EVERY_NS: Final = 1_000_000
"""The CPU clock is a system call (about 1 us): it is read once in so long, for every step that is no shorter."""


def call_code(training: bool, grad: bool, trained: bool) -> int:
    """The code of a forward.

    Args:
        training: the module's mode.
        grad: whether gradients are recorded.
        trained: an optimizer of this run owns its parameters.
    """
    return CALL + training + 2 * grad + 4 * trained


class Log:
    """Events that were not folded yet, and what a tap asks before it notes one."""

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
            "looks",
            "loss_at",
            "marker",
            "note",
            "own_ns",
            "pulled",
            "stepped",
            "steps",
            "thread",
            "trains",
        ),
    )

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """`clock`: of the host, ns."""
        self.clock = clock
        self.cpu_clock: Callable[[], int] = time.process_time_ns
        self.events: list[Event] = []
        """Always the same list: taps keep its `append`."""
        self.note = self.events.append
        self.thread = get_ident()
        """Of the training loop; 0 = nothing is noted any more."""
        self.due, self.due_ns = FIRST_DUE, 0
        """After so many events, or at this time, the next one that may folds them."""
        self.cpu_due_ns = 0
        """When the CPU clock is to be read."""
        self.ending = ""
        """Outcome with which the loop shall be left at its next step: `stopped`, `interrupted`, `budget-reached`, or
        empty = go on."""
        self.backing = 0
        """Backwards that run now, on the training thread."""
        self.calling = 0
        """Forwards of outermost modules that run now, on the training thread."""
        self.stepped = 0
        """Optimizer steps that have ended, on the training thread."""
        self.trains = False
        """The training thread has stepped an optimizer."""
        self.pulled = False
        """A batch came since an optimizer last stepped: what the step holds is known without the model's input."""
        self.steps = 0
        """Asks so far, and backwards where nothing was pulled: at least as many as steps have ended."""
        self.loss_at = 0
        """The count of `steps` from which on the next loss is to be kept."""
        self.looks: list[Any] = []
        """Of the line sampler, which appends them on its own thread (see `found.Look`)."""
        self.marker: Any = None
        """The device's clock while steps are marked, else None."""
        self.own_ns = 0
        """What folding this log and looking for models have taken of the training thread."""

    def taken(self) -> list[Event]:
        """Takes all events off. Taps keep the list's `append`, so it stays the same object."""
        events = self.events[:]
        del self.events[: len(events)]
        return events

    def ours(self, since: int) -> int:
        """What the training thread has done since then was our own work; returns the time.

        Of what a listener has said so itself meanwhile, only the rest counts: what came after the newest event.
        """
        now = self.clock()
        if self.events:
            since = max(since, self.events[-1][1])
        self.own_ns += now - since
        self.note((OURS, now, since))
        return now

    def mark(self, code: int, follow: bool = False) -> None:
        """Puts a mark into the device's queue for an event: after one that begins, before one that ends.

        Who is called in every step asks first whether there is a marker.

        Args:
            code: of the event.
            follow: the current stream is the one that computes.
        """
        marker = self.marker
        if marker is None:
            return
        own_ns = self.own_ns + marker.spent_ns
        put = marker.mark(follow, code in CURRENT)
        self.note((MARK, put.at_ns, (code, put, own_ns)))
