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
    UPDATED,
    CLEARS,
    RESTART,
    PAUSED,
    MARK,
    QUEUE,
    EVALUATES,
    EVALUATED,
    CALL,
) = range(34)
"""What each stands for, and its argument:

NEXT: the loop asks a loader; the `Source`. NEXT_BLIND: as NEXT, while no gradients are recorded.
BATCH: what was asked for is there; how many samples it holds, NaN if unknown. EXHAUSTED: there is no further batch, or
asking for it failed. OPENING: `iter(loader)` begins; whether it looks like an evaluation. OPENED: it has ended; the
`Source` and the loader's role, None where none was made.
CALL (and the seven codes after it, see `call_code`): an outermost module's forward begins; None, or its samples and the
module's id. CALLED: it has ended. GRADIENT: a backward begins; the loss to be kept, or None. DIFFERENTIATE: gradients
are made of which nothing is learned. BACKED: either has ended. ZERO: gradients are set to zero.
STEP, STEPPED: an optimizer's step begins, has ended; its id. ABANDONED: the outermost open step of an optimizer raised.
PHASE: the loop goes over to a phase. DONE: ends a PHASE or a ZERO.
COPYING: a tensor is about to be copied to a device. COPIED: it was; `(bytes, pageable, details)`, None if it failed.
WAITING: the host is about to wait for the device. SYNCED: it has. CAME: a tensor was copied to the host; its details.
BATCH_AT: where the tensors of a batch lie.
COSTLY: a costly call has ended; `(kind, place, ns, bytes)`. OURS: the time since the event before was our own work.
CPU: CPU ns of the process by now. UPDATED: a `torch.no_grad` has ended. CLEARS: the loop sets gradients to zero itself.
RESTART: another thread turned out to be the training thread.
PAUSED: a trial waited for the device between two steps, which is neither's time; since when, and its CPU ns.
MARK: a mark in the device's queue; the code of its event, and the mark or None. QUEUE: whether the queue had run empty.
EVALUATES: a trained model was put into evaluation mode, and no gradients are recorded. EVALUATED: it is put back.
"""
CODES: Final = CALL + 8
DUE: Final = 512
"""Events that are folded at once. Fewer than 700, at which Python looks for garbage in what was made last. To fold
every 80 events cost 17 us a step more; to fold 4000 at once saved nothing more."""
DUE_NS: Final = 200_000_000
"""And at least so often: a view asks twice a second."""
FIRST_DUE: Final = 4
"""At the begin of a run the log is folded after so few, then ever more: models are to be found soon."""
BEHIND_NS: Final = 50_000
"""A device that needs no longer for all it was given keeps up with its host: a kernel takes some microseconds, and
reading a value some tens of them."""
BEHIND_SHARE: Final = 0.05
"""Nor one that needs no longer than this part of the step so far: faster kernels would gain no more (the bar of
findings)."""
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
            "began_ns",
            "clock",
            "cpu_clock",
            "cpu_due_ns",
            "drained",
            "due",
            "due_ns",
            "early",
            "empty",
            "ending",
            "events",
            "last",
            "last_ns",
            "launched",
            "looks",
            "loss_at",
        ),
        *("marker", "note", "pulled", "steps", "thread", "trains", "waiting"),
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
        self.trains = False
        """The training thread has stepped an optimizer."""
        self.pulled = False
        """A batch came since an optimizer last stepped: what the step holds is known without the model's input."""
        self.steps = 0
        """Asks so far, and backwards where nothing was pulled: at least as many as steps have ended."""
        self.loss_at = 0
        """The count of `steps` from which on the next loss is to be kept."""
        self.looks: list[Any] = []
        """Of the line sampler, which appends them on its own thread (see `step_clock.Look`)."""
        self.marker: Any = None
        """The device's clock while steps are marked, else None."""
        self.launched: Any = None
        """The mark that tells whether the device has done all that the open step launched: that of its optimizer, where
        the loop has one."""
        self.began_ns = 0
        """When that was last asked at a step's end."""
        self.empty: bool | None = None
        """Whether the device's queue was empty as the waits since the open step's last backward began; None = none
        tells."""
        self.last: Any = None
        """The end of a forward or a backward, if nothing else was marked since."""
        self.last_ns = 0
        """When that was put."""
        self.early = False
        """The device had done such a one when what comes next began, and no wait had made it: it outran its host."""
        self.drained = False
        """A wait may have emptied it since one of these last began."""
        self.waiting: tuple[int, bool] | None = None
        """When the open wait began, and whether it is for all of the queue; None = it tells nothing any more."""

    def taken(self) -> list[Event]:
        """Takes all events off. Taps keep the list's `append`, so it stays the same object."""
        events = self.events[:]
        del self.events[: len(events)]
        return events

    def mark(self, code: int) -> Any:
        """Puts a mark into the device's queue for an event: after one that begins, before one that ends.

        Returns:
            The mark; None where none can be put, or steps are not marked. Who is called in every step asks that first.
        """
        if self.marker is None:
            return None
        if code in (GRADIENT, STEP):
            # Soon after: a host that stood still meanwhile may have waited for it, unheard, or done other work.
            soon = self.clock() - self.last_ns <= max(BEHIND_NS, BEHIND_SHARE * (self.last_ns - self.began_ns))
            if self.last is not None and soon and not self.drained and self.marker.ready():
                self.early = self.early or self.marker.done(self.last)
            self.drained = False
        if code == GRADIENT:
            self.empty = None  # most of a step is launched from here on, and what came before may be an evaluation
        mark = self.marker.mark()
        computed = code in (CALLED, BACKED)
        if code == STEPPED or (computed and not self.trains):
            self.launched = mark
        self.last, self.last_ns = (mark, self.clock()) if computed else (None, 0)
        self.note((MARK, self.clock(), (code, mark)))
        return mark

    def boundary(self) -> None:
        """A step may end: notes, right before the event that ends it, whether the device had done what it launched.

        A wait for the device has emptied its queue: where there was one, what was found as it began is the answer.
        Where there was none, a device that once had nothing to do within the step has outrun its host: what is left of
        a long kernel, launched last, is no queue.
        """
        launched, self.launched = self.launched, None
        if launched is None or self.marker is None:
            return
        early, self.early = self.early, False
        if not self.marker.ready():
            return
        empty, self.empty, self.began_ns = self.empty, None, self.clock()
        self.note((QUEUE, self.began_ns, (early or self.marker.done(launched)) if empty is None else empty))

    def waits(self, whole: bool = True) -> None:
        """The host is about to wait for the device, as was noted: is there anything to wait for?

        The kernel launched last may still run on a device that outruns its host: what the loop is about to wait for
        anyway may come for so long. Args: whole: for all of the queue; else it may be for something long done.
        """
        self.drained = True
        if self.marker is None or self.empty is False:
            return
        begun, idle = self.clock(), self.marker.idle(BEHIND_NS if whole else 0)
        if idle:
            self.empty = True
        elif idle is not None:
            self.waiting = begun, whole

    def waited(self) -> None:
        """The wait is over: the queue was not empty if it took longer than a device that keeps up is behind."""
        if self.waiting is None:
            return
        (begun, whole), self.waiting = self.waiting, None
        now = self.clock()
        if now - begun > max(BEHIND_NS, BEHIND_SHARE * (now - self.began_ns)):
            self.empty = False
        elif whole:
            self.empty = True
