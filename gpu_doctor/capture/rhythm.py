"""Finds the rhythm of a loop: two steps in a row that had the same events from the same state of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpu_doctor.capture.alonerows import AloneRows, Open
from gpu_doctor.capture.blockrows import BlockRows, counted_batches, foreign, no_loss
from gpu_doctor.capture.eventnotes import (
    ASKED,
    BACK,
    BEGINS,
    COPIED,
    DELIVERED,
    ENDS,
    LEAF,
    LEAVES,
    OPTIMIZER_DONE,
    PAGED,
    SELDOM,
    SYNCED,
    Noted,
    code_of,
)
from gpu_doctor.capture.rests import Rests
from gpu_doctor.capture.stepcounts import Pull
from gpu_doctor.recording.steps import EVALUATION, SYNC, TRANSFER

if TYPE_CHECKING:
    from gpu_doctor.capture.ledger import Ledger

MOST_EVENTS: Final = 256
"""A step of more events is not noted down: what is gained a step is lost where one does not fit."""
FIRST_LOOK: Final = 2
"""Steps before the first look for a rhythm; after one that failed or broke off, twice as many as the time before."""
LONGEST_PAUSE: Final = 64

_TIMES: Final = {
    *("mark", "step_begin", "cpu_due", "cpu_mark", "acc", "acc_at_ask", "end_ns", "end_acc", "last_samples"),
    *("events", "evaluation_edge_ns", "now", "counts", "newest", "asks", "fed"),
    *(*BEGINS, *ENDS, *LEAVES, *SELDOM, *ASKED),
}
"""What of the ledger differs from step to step without changing what an event means."""


class Rhythm:
    """The part of `SteadySteps` that watches the ledger until its steps repeat."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.pulse = ledger.pulse
        """`taking`: the ledger's events are noted here, not told to it. `resting`: only the loader's."""
        self.rests = Rests(ledger.pulse)
        self._watching = False
        self._pause = self._wait = FIRST_LOOK
        # what a step is made of
        self.notes = Noted()
        """Always the same lists: a wrapper may keep their `append`."""
        self._phases: list[int] = []
        self._state: dict[str, Any] = {}
        self._fed: list[bool] = []
        """Of each forward, whether its samples became the step's."""
        self._before: tuple[list[Any], list[int], list[bool]] | None = None
        self._open: Open | None = None
        """Of a loop that pulls from nothing: what it had of the open step when the watched one began."""
        self._ended = False
        self._tries = 0
        """Steps at whose end it is tried whether the last rhythm goes on."""
        # the rhythm
        self._full: list[Any] = []
        """Codes of a step's events, all taps listening,"""
        self._ends: list[int] = []
        """and the phases that they end."""
        self._known: dict[str, Any] = {}
        """The ledger's state at the begin of its steps."""
        self._rows: BlockRows | None = None
        self._alone: AloneRows | None = None
        """As `_rows`, where nothing is pulled: one of the two is there."""
        self._pull: Pull = Pull()
        self._batches = 0
        self._alarms = {name: self._broken(name) for name in (*BEGINS, *ENDS, *LEAVES, *SELDOM, *ASKED)}

    def _take(self, pull: Pull, before: int, pattern: list[Any], ends: list[int], key: int) -> None:
        raise NotImplementedError

    def stop(self, cause: str = "") -> None:
        """The rhythm is broken; `cause`: by an event that none has, by its name."""
        raise NotImplementedError

    def step_ended(self, pull: Pull | None, before: int, key: int = 0) -> int:
        """The ledger has closed a training step; returns what its event returns, usually `before`.

        Args:
            pull: who was asked for a batch; None where nothing is pulled from: optimizer `key` is about to step.
            before: phase to go back to. key: the optimizer's.
        """
        self.rests.told(self._ledger.newest)
        if self._watching:
            self._ended = True  # the watched ask goes on from here
            return before
        if self._ledger.marks is not None:
            return before  # steps that are marked on the device are told to the ledger
        if self._tries:
            self._tries -= 1
            if not (self._tries and self.rests.held_up()) and self._resumed(pull, before, key):
                return BACK
        self._wait -= 1
        if self._wait <= 0:
            self._watch(pull is None)
        return before

    def _snapshot(self, alone: bool = False) -> dict[str, Any] | None:
        """All that decides what the coming events mean; None where a step has left something open.

        Args:
            alone: nothing is pulled: most of the next step has been done.
        """
        ledger = self._ledger
        now = ledger.now
        fresh = not (now.batches or now.samples or now.edge_ns)
        clear = not (now.transfers or now.syncs or now.forward_samples == now.forward_samples or any(ledger.acc))
        if ledger.counts is not None or not fresh or not (clear or alone):
            return None
        if ledger.marks is not None or ledger.held is not None or ledger.back or ledger.stepped:
            return None
        kept = ((name, value) for name, value in vars(ledger).items() if name not in _TIMES)
        state = {name: value.copy() if isinstance(value, list) else value for name, value in kept}
        return {**state, "now": (now.transfers, now.pageable, now.syncs)} if alone else state

    def _left_open(self) -> Open:
        ledger = self._ledger
        now = ledger.now
        return Open(ledger.acc.copy(), ledger.step_begin, ledger.mark, now.forward_samples, now.transfer_bytes)

    def _resumed(self, pull: Pull | None, before: int, key: int) -> bool:
        """Goes on with the rhythm that was broken, if the loop is where that began: an epoch later, by a new iterator.

        It is found out by the first step that does not fit if the loop has changed, as at any other time.
        """
        state, then, old = self._snapshot(pull is None), self._known, self._pull
        rows = self._alone if pull is None else self._rows
        if rows is None or state is None or state.keys() != then.keys() or (pull is None and self._full[-1] != key):
            return False
        if any(isinstance(code, Pull) and code is not old for code in self._full):
            return False  # of several loaders it is not known which is which
        moved = (name for name, value in state.items() if value is not then[name] and value != then[name])
        if not all(name == "epoch" or (then[name] is old and state[name] is pull) for name in moved):
            return False
        rows.in_epoch(max(self._ledger.epoch, 0))
        pattern = [
            code if isinstance(code, int) else (pull,) if isinstance(code, tuple) else pull for code in self._full
        ]
        self._known = state
        self._hear_the_seldom()
        self._take(pull or old, before, pattern, self._ends, key)
        return True

    def _watch(self, alone: bool) -> None:
        state = self._snapshot(alone)
        if state is None:
            self._fail()
            return
        self._watching, self._state, self._before, self._ended = True, state, None, False
        self._clear()
        for name in (*BEGINS, *ENDS):
            setattr(self._ledger, name, self._watched(name))
        for name in LEAVES:
            setattr(self._ledger, name, self._watched_leaf(name))
        self._hear_the_seldom()

    def _hear_the_seldom(self) -> None:
        vars(self._ledger).update((name, self._alarms[name]) for name in SELDOM)

    def _watched(self, name: str) -> Callable[..., Any]:
        """The ledger's own method, with its event, the phase that it ends and its time noted down."""
        ledger, direct = self._ledger, getattr(type(self._ledger), name)

        def event(*args: Any) -> Any:
            self.notes.codes.append(code_of(name, args))
            self._phases.append(EVALUATION if ledger.evaluating else ledger.phase)
            doubtful, given = ledger.no_loss is not None, ledger.now.forward_samples
            result = direct(ledger, *args)
            self.notes.times.append(ledger.mark)
            if doubtful and ledger.no_loss is None and name in ("ask", "forward", "optimizer"):
                no_loss(self._phases)
            if name == "delivered":
                self.notes.samples.append(args[1])
            elif self._ended and name in ("ask", "optimizer"):
                self._compare(args[0] if name == "ask" else None, result, 0 if name == "ask" else args[0])
                if self.pulse.taking:
                    return BACK
            elif name == "forward":
                taken = ledger.now.forward_samples
                self._fed.append(taken != given and taken == taken)
                self.notes.inputs.append(args[3])
            elif len(self.notes.codes) > MOST_EVENTS:
                self._fail()
            if name not in BEGINS or args == (BACK,):
                return None
            ledger.back.append(result)
            return BACK

        return event

    def _watched_leaf(self, name: str) -> Callable[..., None]:
        """As `_watched`, for a copy or a wait that has just ended inside the running phase."""
        ledger, direct = self._ledger, getattr(type(self._ledger), name)

        def event(*args: Any) -> None:
            direct(ledger, *args)
            leaf = TRANSFER if name == "copied" else args[0]
            if ledger.evaluating or leaf not in (TRANSFER, SYNC) or len(self.notes.codes) > MOST_EVENTS:
                self._fail()
                return
            now, code = ledger.clock(), SYNCED
            if name == "copied":
                self.notes.moved.append(args[0])
                code = PAGED if args[1] else COPIED
            self.notes.codes.extend((LEAF, code))
            self._phases.extend((ledger.phase, leaf))
            self.notes.times.extend((now - args[-1], now))

        return event

    def _broken(self, name: str) -> Callable[..., Any]:
        """An event that no rhythm has: the ledger is told as ever."""
        ledger, direct = self._ledger, getattr(type(self._ledger), name)

        def event(*args: Any) -> Any:
            if self.pulse.taking or self.pulse.resting:
                self.stop(name)
            else:
                self._fail()
            return direct(ledger, *args)

        return event

    def _compare(self, pull: Pull | None, before: int, key: int) -> None:
        """A watched step has ended: the rhythm is found if it is the same as the one before."""
        self._ended = False
        state = self._snapshot(pull is None)
        found = codes, phases, fed = self.notes.codes.copy(), self._phases.copy(), self._fed.copy()
        if state is None or state != self._state or (pull is not None and foreign(codes, pull)):
            self._fail()
            return
        if self._before is None:
            self._before, self._open = found, self._left_open()
            self._clear()
            return
        written, began = np.asarray(self._ledger.newest), self._ledger.began
        rows = alone = None
        if self._before != found:
            pass
        elif pull is not None:
            counted = counted_batches(codes)
            rows = BlockRows(phases, written, counted, len(self.notes.moved), began)
            if not counted.any() or not rows.holds(self.notes):
                rows = None
        elif OPTIMIZER_DONE in codes and not any(one == DELIVERED or not isinstance(one, int) for one in codes):
            alone = AloneRows(codes, phases, fed, written, began)
            if self._open is None or not alone.holds(self._open, self.notes, self._left_open()):
                alone = None
        if rows is None and alone is None:
            self._fail()
            return
        self._known, self._rows, self._alone, self._batches = state, rows, alone, len(self.notes.samples)
        self.rests.begin(codes, phases)
        self._take(pull or self._pull, before, codes, phases, key)

    def _fail(self) -> None:
        """No rhythm: the ledger goes on as it is, and is watched again after a while."""
        self._release()
        self._watching = False
        self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)

    def _release(self) -> None:
        for name in (*BEGINS, *ENDS, *LEAVES, *SELDOM, *ASKED):
            vars(self._ledger).pop(name, None)
        self._clear()

    def forget(self) -> None:
        """The run is over: what the ledger had in a rhythm, functions of taps among it, keeps nothing of the loop."""
        self._state, self._known, self._before, self._open = {}, {}, None, None
        self._rows = self._alone = None

    def _clear(self) -> None:
        self.notes.clear()
        self._phases.clear()
        self._fed.clear()
