"""Collects what taps and probes report during a run, and turns it into a frozen recording.

Each list has one writer: the training thread writes the log, the rows and the losses; the poller writes the readings
and the stack samples. Readers on other threads slice by cursor. There is no lock: a reader may be one row late, but a
training loop must not wait for a reader.
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
    """Raised to leave the user's loop at the end of a budget or at Stop; `except Exception` does not catch it."""


class Recorder:
    """Collects the data of one run while it goes on; also the Feed that views follow."""

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
        """Starts to collect.

        Args:
            settings: values of the knobs in this run.
            name: the run's name, for people.
            source: text of the code that runs.
            max_steps: budget in steps; when it is spent, `ending` is set and the taps leave the loop at its next step.
            max_s: budget in seconds.
            sync_measured: True if waits for a device are tapped.
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
        # On an injected clock, such as a test's, recording an event takes no time: the clock stands still meanwhile.
        self._price = EventPrice(clock) if clock is time.perf_counter_ns else None
        self.step_clock = StepClock(self._began, sync_measured)
        self.fence = Fence(self._give_up, self.log)
        self.max_steps = max_steps
        self.deadline_ns = None if max_s is None else self._began + round(max_s * 1e9)
        """End of the time budget, in ns of the host clock; None = no such budget. A listener for steps may set it."""
        self.plan = FoldPlan(self.log)
        self.listeners = Listeners()
        self.device_waits = DeviceWaits(self.log, self.note)
        self.forward_number: int | None = None
        """Autograd's sequence number of the newest operation of the last forward that a tap examined."""
        self.marks: MarkReader | None = None
        self.windows: DeviceWindows | None = None
        """Decides which steps are marked on the device."""
        self.facts = Fields(Setup, ("loaders",))
        """Fields of the setup, as the taps find them."""
        self.parts = Fields(Recording, WRITTEN_AT_CLOSE)
        """Fields of the recording that taps fill; several taps may add to one field (chores, traffic, lines)."""
        self.loaders: dict[str, LoaderSetup] = {}
        """Setup of each loader that the loop uses, by the loader's key."""
        self.remembered: list[weakref.ref[Any]] = []
        """Weak references to the loop's optimizers, models and loaders, for code that cannot find them by a name."""
        self._undo: list[Callable[[], None]] = []
        """Functions that take our wrappers off the process at once."""
        self.notes: list[str] = []
        """Sentences for the footer of the panel."""
        self.over = threading.Event()
        """Set when the run has ended."""
        self.retired = False
        """True once no thread is recorded any more, see `retire`."""
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
        """Outcome with which the loop is to be left at its next step; empty = go on."""
        return self.log.ending

    @property
    def step_count(self) -> int:
        """Number of steps that have ended and were folded."""
        return self.step_clock.step_count

    # ---- written by taps and probes -----------------------------------------------------------------------------

    def mine(self) -> bool:
        """True on the training thread; the work of other threads is not recorded."""
        return threading.get_ident() == self.thread

    def started(self) -> bool:
        """True once the loop has begun."""
        return self.step_clock.started or any(code in STARTS for code, _, _ in tuple(self.log.events))

    def adopt(self, trains: bool = False) -> bool:
        """Makes the calling thread the training thread if no other one trains.

        A training thread that has ended is replaced by the next one, as some loops start a thread for each epoch.

        Args:
            trains: True if the thread uses an optimizer. A thread that only requests batches may be a prefetcher: it
                is the training thread until another one trains.

        Returns:
            True if the calling thread is now the training thread.
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
        """True if the training thread has not ended."""
        thread = self._trainer()
        return thread is not None and thread.is_alive()

    def retire(self) -> None:
        """Ends the recording of all threads: wrappers that other code still holds only call the original from now on.

        It takes no lock, as it also runs in a process that was forked from the run.
        """
        self.retired = True
        self.log.thread = 0

    def _give_up(self, error: Exception) -> None:
        """Stops recording after an error of our own, with a note; the user's loop goes on."""
        again = self.retired
        self.retire()
        self.take_off()
        if not again:
            after = f"after {formatting.grouped(self.step_count)} steps" if self.step_count else "before the first step"
            self.note(f"gpu_doctor stopped recording {after} because of an internal error: {error!r}.")

    def remember(self, *objects: Any) -> None:
        """Remembers optimizers, models or loaders, by weak references, and forgets those that are gone."""
        self.remembered[:] = [*(ref for ref in self.remembered if ref() is not None), *map(weakref.ref, objects)]

    def undo_by(self, undo: Callable[[], None]) -> None:
        """Registers a function that takes a wrapper of ours off; `take_off` calls it twice."""
        self._undo.append(undo)

    def take_off(self) -> None:
        """Takes all our wrappers off this process, after an error or in a process that was forked from the run's."""
        for undo in (*reversed(self._undo), *reversed(self._undo)):  # twice: a second try may succeed
            with contextlib.suppress(Exception):
                undo()

    def undone(self) -> None:
        """Forgets the registered functions: the taps have taken off everything themselves."""
        self._undo.clear()

    def note(self, text: str) -> None:
        """Adds a sentence to the footer, if it is not there yet."""
        if text not in self.notes:
            self.notes.append(text)

    def stop(self) -> None:
        """Requests that the loop ends at its next step; may be called on any thread."""
        self.log.ending = self.ending or "stopped"

    def check_end(self) -> None:
        """Leaves the loop if its end was requested; taps call it where leaving is clean.

        Raises:
            RunEnded: if the budget is spent or Stop was requested.
        """
        if self.ending:
            raise RunEnded(self.ending)

    def event(self, code: int, arg: Any = None) -> None:
        """Records an event now, and folds the log if due; for taps that may record any number of events a step."""
        now = self.clock()
        self.log.note((code, now, arg))
        if now >= self.log.due_ns or len(self.log.events) >= self.log.due:
            self.fold(now)

    # ---- from events to rows ----------------------------------------------------------------------------------------

    def fold(self, since: int | None = None) -> None:
        """Turns the recorded events into rows, on the training thread; the time this takes counts as our own.

        Args:
            since: time of the newest event, in ns: the time from then on is our own. None = now.
        """
        log, begin, paused = self.log, self.clock() if since is None else since, self.device_waits.paused_ns
        if threading.get_ident() != log.thread:  # another thread has become the training thread meanwhile
            return
        if self._price is not None:
            self.step_clock.event_ns = self._price.timed()
        self._take(log.taken())
        begin += self.device_waits.paused_ns - paused  # a trial's wait is no part of any step
        now = log.ours(begin)
        self._plan_next(now, min(2 * log.due, DUE))

    def _take(self, events: list[Event]) -> None:
        """Feeds events to the step clock, stores the steps and losses that it finds, and calls the listeners."""
        clock, remaining = self.step_clock, iter(events)
        try:
            clock.fold(remaining, self.log.stack_samples)
        except Exception:
            raise
        except BaseException:  # an interrupt: the content of the open step is unknown now
            self.log.events[:0] = [(RESTART, clock.now, None), *remaining]
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
            clock.steps[:0] = ended  # empty, unless an interrupt came
        if clock.device.spent and self.marks is not None:
            spent, clock.device.spent = clock.device.spent, []
            self.marks.clock.free(*spent)
        for at, number in found.losses:
            self.losses.keep(at, number)
        for key, role in found.roles:
            if key in self.loaders:
                self.loaders[key] = dataclasses.replace(self.loaders[key], role=role)
        self.listeners.report_found(found)
        if self.windows is not None:
            self._mark_on(len(found.steps), len(events))
        if found.steps:
            self._steps_ended(found.steps[-1].end_ns)

    def _mark_on(self, steps: int, events: int) -> None:
        """Decides whether the next steps are marked on the device.

        Args:
            steps: number of steps that have just ended.
            events: number of events that were folded for them.
        """
        assert self.windows is not None
        before, self.log.marker = self.log.marker, self.windows.folded(steps, events, self.clock())
        if before is not None and self.log.marker is None:
            self.step_clock.device.stopped()

    def _steps_ended(self, now: int) -> None:
        """Calls the listeners for steps, and requests the loop's end if the budget is spent at `now` (ns)."""
        self.listeners.report_steps(now)
        if not self.ending and (
            (self.max_steps is not None and self.step_count >= self.max_steps)
            or (self.deadline_ns is not None and now >= self.deadline_ns)
        ):
            self.log.ending = "budget-reached"
            self.listeners.report_budget_spent()
        self.listeners.beat(now, self.clock)

    def _plan_next(self, now: int, due: int) -> None:
        """Plans the next fold, after at most `due` events; see `FoldPlan.next`."""
        steps_left = None if self.max_steps is None else self.max_steps - self.step_count
        self.plan.next(now, due, steps_left, self.deadline_ns, None if self.windows is None else self.windows.due)

    def mark_no_more(self) -> None:
        """Stops marking steps on the device."""
        if self.windows is not None:
            self.windows, self.log.marker = None, None
            self.step_clock.device.stopped()

    def store_loss(self, loss: Any) -> int | None:
        """Stores the detached loss of a backward that begins.

        Args:
            loss: the loss, None if the backward has none.

        Returns:
            The number of the loss, for the backward's event; None without a loss.
        """
        self.log.loss_at = self.losses.next_after(self.log.steps)
        return None if loss is None else self.losses.offer(loss)

    def loop_over(self) -> None:
        """Folds the last events and settles the last batch's role, before the taps come off."""
        try:
            self._take(self.log.taken())
            self.step_clock.no_more_requests()
            self._take([])
        except Exception as error:
            self._give_up(error)

    # ---- read by views and by the judgement ---------------------------------------------------------------------

    def news(self, cursor: Cursor) -> News:
        """Returns the rows and readings that a view has not seen yet, see `Feed.news`."""
        done = self._closed_s is not None  # read first: if the run is over, everything below is final
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
        """Returns the seconds since the run began; once it has ended, its whole duration."""
        return self._closed_s if self._closed_s is not None else (self.clock() - self._began) * 1e-9

    def tapped_s(self) -> float:
        """Returns the seconds that our work took on the training thread so far, without the search for models."""
        return max(self.step_clock.own_ns * 1e-9 - self.cost.searched_s, 0.0)

    def setup(self) -> Setup:
        """Returns the setup as found so far."""
        return Setup(**self.facts.now(), loaders=tuple(self.loaders.values()))

    def so_far(self) -> Recording:
        """Returns a recording of the run so far, for a live verdict; losses are left out, as reading them may wait."""
        return self._recording("completed", "", self.elapsed_s(), Losses())

    def close(self, outcome: str = "completed", reason: str = "") -> Recording:
        """Ends the last step and freezes everything.

        Args:
            outcome: one of `recording.OUTCOMES`.
            reason: one sentence if the outcome is not `completed`.
        """
        self.over.set()
        self._finish()
        self.readings.finish()
        self._closed_s = self.elapsed_s()
        # Reading the losses waits for their steps on the device: after that the steps' marks are reached.
        losses = self.losses.read(self.table.steps(), self.note)
        with contextlib.suppress(Exception):
            if self.marks is not None:
                self.marks.finish()
        loop_s = float(np.nansum(self.table.steps().wall_s))
        if dear := self.cost.too_dear(self.tapped_s(), loop_s, self.step_count):
            self.note(dear)
        return self._recording(outcome, reason, self._closed_s, losses)

    def _finish(self) -> None:
        """Ends the last step and the table of steps."""
        try:
            self._take(self.log.taken())
            self.step_clock.read_cpu(self.log.cpu_clock())
            tail = self.step_clock.finish()
            self._take([])
            self.table.finish()
            if tail:
                self.table.extend(self.step_clock.tail(tail))
                self.listeners.report_calls(*(span.calls for span in tail))
            if self.marks is not None:
                self.marks.rest()
                self.marks.read()
        except Exception as error:
            self._give_up(error)

    def _recording(self, outcome: str, reason: str, duration_s: float, losses: Losses) -> Recording:
        """Returns everything collected so far as a frozen recording."""
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
