"""Collects what taps and probes report while a run goes on, and turns it into a frozen recording.

Each list in it has one writer: the training thread writes the log, the rows and the losses, the poller the readings
and the looks. Readers on other threads slice by cursor. There is no lock: a reader that is one row late is fine, a
training loop that waits for a reader is not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.capture.cost import EventPrice
from gpu_doctor.capture.device_waits import DeviceWaits
from gpu_doctor.capture.events import DUE, FIRST_DUE, RESTART, STARTS, Event, Log
from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.fields import WRITTEN_AT_CLOSE, Fields
from gpu_doctor.capture.fold_plan import FoldPlan
from gpu_doctor.capture.gpu.marks import MarkReader
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.kept_losses import KeptLosses
from gpu_doctor.capture.listeners import Listeners
from gpu_doctor.capture.own_cost import OwnCost
from gpu_doctor.capture.readings import AllReadings
from gpu_doctor.capture.step_clock import StepClock
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording import Cursor, LoaderSetup, Losses, News, Recording, Settings, Setup, readings_since


class RunEnded(BaseException):
    """Leaves the user's loop at the end of a budget or at Stop, through `except Exception` too."""


class Recorder:
    """The open book of one run; also a Feed that views follow."""

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        name: str = "",
        source: str = "",
        max_steps: int | None = None,
        max_s: float | None = None,
        sync_measured: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Opens the book.

        Args:
            settings: what the knobs are turned to.
            name: of the run, for people.
            source: text of the code that runs.
            max_steps: budget in steps; when it is spent, `ending` is set and the taps leave the loop at its next step.
            max_s: the same in seconds.
            sync_measured: whether waits for a device are tapped.
            clock: host clock in nanoseconds.
        """
        self.settings, self.name, self.source = dict(settings or {}), name, source
        self.clock = clock
        self.table = StepTable()
        self.log = Log(clock)
        self._began = clock()
        self._trainer = weakref.ref(threading.current_thread())
        """The training thread."""
        self.cost = OwnCost(self.log)
        # An event takes nothing on a clock of somebody else's, such as a test's, which stands still meanwhile.
        self._price = EventPrice(clock) if clock is time.perf_counter_ns else None
        self.step_clock = StepClock(self._began, sync_measured)
        self.fence = Fence(self._give_up, self.log)
        self.max_steps = max_steps
        self.deadline_ns = None if max_s is None else self._began + round(max_s * 1e9)
        """When the seconds are over, on the host clock; who hears of steps may set it, None = they are without end."""
        self.plan = FoldPlan(self.log)
        self.listeners = Listeners()
        self.device_waits = DeviceWaits(self.log, self.note)
        self.forward_number: int | None = None
        """Autograd's number of the newest operation of the last forward that was looked at."""
        self.marks: MarkReader | None = None
        self.windows: DeviceWindows | None = None
        """Says which steps are marked on the device."""
        self.facts = Fields(Setup, ("loaders",))
        """What the taps find of the setup."""
        self.parts = Fields(Recording, WRITTEN_AT_CLOSE)
        """What others add to the recording; some of it is added up by several taps (chores, traffic, lines)."""
        self.loaders: dict[str, LoaderSetup] = {}
        self.met: list[weakref.ref[Any]] = []
        """Optimizers, models and loaders of the loop, for who must find them where no name leads to them."""
        self._undo: list[Callable[[], None]] = []
        """Take everything of ours off the process, at once."""
        self.notes: list[str] = []
        self.over = threading.Event()
        """Set when the run has ended."""
        self.retired = False
        self.started_at = time.time()
        self.readings = AllReadings(self._began)
        self.losses = KeptLosses()
        self._closed_s: float | None = None
        self._plan_next(self._began, FIRST_DUE)

    @property
    def thread(self) -> int:
        """The training thread's id."""
        return self.log.thread

    @property
    def ending(self) -> str:
        """Outcome with which the loop shall be left at its next step; empty = go on."""
        return self.log.ending

    @property
    def step_count(self) -> int:
        """Steps that have ended and were folded."""
        return self.step_clock.step_count

    # ---- written by taps and probes -----------------------------------------------------------------------------

    def mine(self) -> bool:
        """True on the training thread; what other threads do is not accounted."""
        return threading.get_ident() == self.thread

    def started(self) -> bool:
        """Whether the loop has begun."""
        return self.step_clock.started or any(code in STARTS for code, _, _ in tuple(self.log.events))

    def adopt(self, trains: bool = False) -> bool:
        """Makes the calling thread the training thread if none has trained yet; returns whether it is.

        Where the training thread has ended, the loop goes on with the next one: some make a thread for each epoch.

        Args:
            trains: the thread uses an optimizer. One that only pulls batches may be a prefetcher: it is taken for the
                training thread while nothing was heard of another, and makes way for one that trains.
        """
        if threading.get_ident() == self.thread:
            return True
        goes_on = self.log.trains and not self._trainer_lives()
        if self.retired or (not goes_on and (self.log.trains or (not trains and self.started()))):
            return False
        self.log.thread, self._trainer = threading.get_ident(), weakref.ref(threading.current_thread())
        if not goes_on:
            self.log.pulled = False
            self.log.note((RESTART, self.clock(), None))
        return True

    def _trainer_lives(self) -> bool:
        """Whether the training thread has not ended."""
        thread = self._trainer()
        return thread is not None and thread.is_alive()

    def retire(self) -> None:
        """No thread is the training thread any more: wrappers that other code has kept only call what they wrap.

        It takes no lock: a process that was forked from the run is told too.
        """
        self.retired = True
        self.log.thread = 0

    def _give_up(self, error: Exception) -> None:
        """Something of ours has failed in the user's loop, which goes on without us."""
        again = self.retired
        self.retire()
        self.take_off()
        if not again:
            after = f"after {formatting.grouped(self.step_count)} steps" if self.step_count else "before the first step"
            self.note(f"gpu_doctor stopped recording {after} because of an error of its own: {error!r}.")

    def meet(self, *objects: Any) -> None:
        """Remembers an optimizer, models or a loader for as long as they live."""
        self.met[:] = [*(ref for ref in self.met if ref() is not None), *map(weakref.ref, objects)]

    def undo_by(self, undo: Callable[[], None]) -> None:
        """Is called, twice, where something of ours has failed: it takes something of ours off the process."""
        self._undo.append(undo)

    def take_off(self) -> None:
        """Takes everything of ours off this process, such as one that was forked from the run's."""
        for undo in (*reversed(self._undo), *reversed(self._undo)):  # once more: a second try may succeed
            with contextlib.suppress(Exception):
                undo()

    def undone(self) -> None:
        """All of ours comes off by itself: nothing is left to undo."""
        self._undo.clear()

    def note(self, text: str) -> None:
        """One sentence for the footer, once."""
        if text not in self.notes:
            self.notes.append(text)

    def stop(self) -> None:
        """Asks the loop to end at its next step; may be called on any thread."""
        self.log.ending = self.ending or "stopped"

    def check_end(self) -> None:
        """Leaves the loop if its end was asked for; called by taps where leaving is clean.

        Raises:
            RunEnded: if the budget is spent or Stop was asked for.
        """
        if self.ending:
            raise RunEnded(self.ending)

    def event(self, code: int, arg: Any = None) -> None:
        """Notes an event now, and folds the log where that is due: of taps that a loop may hear any number of times."""
        now = self.clock()
        self.log.note((code, now, arg))
        if now >= self.log.due_ns or len(self.log.events) >= self.log.due:
            self.fold(now)

    # ---- from events to rows ----------------------------------------------------------------------------------------

    def fold(self, since: int | None = None) -> None:
        """Folds what was noted into rows, on the training thread; what that takes is none of the loop's phases.

        Args:
            since: when the newest event was noted: from there on the time is ours.
        """
        log, begin, paused = self.log, self.clock() if since is None else since, self.device_waits.paused_ns
        if threading.get_ident() != log.thread:  # another one has become the training thread meanwhile
            return
        if self._price is not None:
            self.step_clock.event_ns = self._price.timed()
        self._take(log.taken())
        begin += self.device_waits.paused_ns - paused  # that is no part of any step
        now = log.ours(begin)
        self._plan_next(now, min(2 * log.due, DUE))

    def _take(self, events: list[Event]) -> None:
        clock, rest = self.step_clock, iter(events)
        try:
            clock.fold(rest, self.log.looks)
        except Exception:
            raise
        except BaseException:  # an interrupt: what the open step consists of is not known any more
            self.log.events[:0] = [(RESTART, clock.now, None), *rest]
            raise
        count = clock.step_count - len(clock.steps)
        found = clock.found()
        ended = iter(found.steps)
        try:
            for number, step in enumerate(ended, count):
                row = self.table.append(step.values)
                if self.marks is not None and step.marks is not None:
                    self.marks.ended(row, step.marks, number)
                elif self.marks is not None:
                    self.marks.rest()
        finally:
            clock.steps[:0] = ended  # none, but where an interrupt came
        if clock.device.spent and self.marks is not None:
            spent, clock.device.spent = clock.device.spent, []
            self.marks.clock.free(*spent)
        for at, number in found.losses:
            self.losses.keep(at, number)
        for key, role in found.roles:
            if key in self.loaders:
                self.loaders[key] = dataclasses.replace(self.loaders[key], role=role)
        self.listeners.tell_found(found)
        if self.windows is not None:
            self._mark_on(len(found.steps), len(events))
        if found.steps:
            self._steps_ended(found.steps[-1].end_ns)

    def _mark_on(self, steps: int, events: int) -> None:
        """So many steps have ended, with so many events: the next ones are marked on the device, or not."""
        assert self.windows is not None
        before, self.log.marker = self.log.marker, self.windows.folded(steps, events, self.clock())
        if before is not None and self.log.marker is None:
            self.step_clock.device.stopped()

    def _steps_ended(self, now: int) -> None:
        self.listeners.tell_steps(now)
        if not self.ending and (
            (self.max_steps is not None and self.step_count >= self.max_steps)
            or (self.deadline_ns is not None and now >= self.deadline_ns)
        ):
            self.log.ending = "budget-reached"
            self.listeners.tell_budget()
        self.listeners.beat(now, self.clock)

    def _plan_next(self, now: int, due: int) -> None:
        left = None if self.max_steps is None else self.max_steps - self.step_count
        self.plan.next(now, due, left, self.deadline_ns, None if self.windows is None else self.windows.due)

    def mark_no_more(self) -> None:
        """No step is marked on the device from here on."""
        if self.windows is not None:
            self.windows, self.log.marker = None, None
            self.step_clock.device.stopped()

    def keep_loss(self, loss: Any) -> int | None:
        """Takes the detached loss of a backward that begins, None = it has none; returns what its event carries."""
        self.log.loss_at = self.losses.next_after(self.log.steps)
        return None if loss is None else self.losses.offer(loss)

    def loop_over(self) -> None:
        """All taps are about to come off: what was noted is folded, and what is known of its end is settled."""
        try:
            self._take(self.log.taken())
            self.step_clock.asked_no_more()
            self._take([])
        except Exception as error:
            self._give_up(error)

    # ---- read by views and by the judgement ---------------------------------------------------------------------

    def news(self, cursor: Cursor) -> News:
        """See `Feed.news`."""
        done = self._closed_s is not None  # first: what is read below is all there is then
        generation = self.table.generation
        reset = cursor.generation != generation
        start = 0 if reset else cursor.rows
        steps = self.table.steps(start)
        series, read = readings_since(self.readings.series(), cursor.readings)
        return News(
            cursor=Cursor(generation, start + len(steps), read),
            steps=steps,
            series=series,
            reset=reset,
            elapsed_s=self.elapsed_s(),
            step_count=self.step_count,
            done=done,
        )

    def elapsed_s(self) -> float:
        """Seconds since the run began, of the whole run once it has ended."""
        return self._closed_s if self._closed_s is not None else (self.clock() - self._began) * 1e-9

    def tapped_s(self) -> float:
        """What the taps have cost the loop so far: all of our work on the training thread but the search for models."""
        return max(self.step_clock.own_ns * 1e-9 - self.cost.searched_s, 0.0)

    def setup(self) -> Setup:
        """What was found so far."""
        return Setup(**self.facts.now(), loaders=tuple(self.loaders.values()))

    def so_far(self) -> Recording:
        """The run as it stands, for a verdict while it goes on; losses are left out (reading one may wait)."""
        return self._recording("completed", "", self.elapsed_s(), Losses())

    def close(self, outcome: str = "completed", reason: str = "") -> Recording:
        """Ends the last step and freezes everything.

        Args:
            outcome: one of `recording.OUTCOMES`.
            reason: one sentence where it is not `completed`.
        """
        self.over.set()
        self._finish()
        self.readings.finish()
        self._closed_s = self.elapsed_s()
        # To read them waits for the steps that they belong to: after it their marks are passed.
        losses = self.losses.read(self.table.steps(), self.note)
        with contextlib.suppress(Exception):
            if self.marks is not None:
                self.marks.finish()
        loop_s = float(np.nansum(self.table.steps().wall_s))
        if dear := self.cost.too_dear(self.tapped_s(), loop_s, self.step_count):
            self.note(dear)
        return self._recording(outcome, reason, self._closed_s, losses)

    def _finish(self) -> None:
        """The last step ends, and with it the table."""
        try:
            self._take(self.log.taken())
            self.step_clock.read_cpu(self.log.cpu_clock())
            tail = self.step_clock.finish()
            self._take([])
            self.table.finish()
            if tail:
                self.table.extend(self.step_clock.tail(tail))
                self.listeners.tell_calls(*(span.calls for span in tail))
            if self.marks is not None:
                self.marks.rest()
                self.marks.read()
        except Exception as error:
            self._give_up(error)

    def _recording(self, outcome: str, reason: str, duration_s: float, losses: Losses) -> Recording:
        return Recording(
            steps=self.table.steps(),
            settings=self.settings,
            setup=self.setup(),
            outcome=outcome,
            reason=reason,
            series=self.readings.series(),
            losses=losses,
            notes=tuple(self.notes),
            name=self.name,
            source=self.source,
            started_at=self.started_at,
            duration_s=duration_s,
            overhead_s=self.cost.whole_s(self.tapped_s()),
            **self.parts.now(),
        )
