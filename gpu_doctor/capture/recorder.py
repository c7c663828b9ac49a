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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.capture.cost import Governor, event_cost_ns, too_dear
from gpu_doctor.capture.events import DUE, DUE_NS, FIRST_DUE, PAUSED, RESTART, Event, Log
from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.gpu.marks import MarkReader
from gpu_doctor.capture.gpu.windows import DeviceWindows
from gpu_doctor.capture.kept_losses import KeptLosses
from gpu_doctor.capture.readings import Readings
from gpu_doctor.capture.step_clock import STARTS, Place, Seen, StepClock
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording import (
    Cursor,
    LoaderSetup,
    Losses,
    Metric,
    News,
    Recording,
    Series,
    Settings,
    Setup,
    readings_since,
    series_key,
)

MARKED_DUE: Final = 64
"""Events that are folded at once while steps are marked on the device: two or three steps."""
FEW_SEARCHES: Final = 8
"""Optimizers that a loop may well have: each is looked for once, at its begin."""
FEWEST_EVENTS: Final = 2
"""A step has no fewer: so many steps before a budget ends, the log is folded after so many times as many events."""
BEAT_S: Final = 0.5
LONGEST_BEAT_S: Final = 5.0


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
        self._event_ns = event_cost_ns() if clock is time.perf_counter_ns else 0.0
        """What noting an event takes of the training thread; nothing on a clock that stands still meanwhile."""
        self.step_clock = StepClock(self._began, sync_measured, round(self._event_ns))
        self.fence = Fence(self._give_up, self.log)
        self.max_steps = max_steps
        self.deadline_ns = None if max_s is None else self._began + round(max_s * 1e9)
        """When the seconds are over, on the host clock; who hears of steps may set it, None = they are without end."""
        self._each_step = False
        self.beat: Callable[[], None] | None = None
        """Called on the training thread twice a second at most, where a view cannot be reached from another thread."""
        self.on_step: list[Callable[[int], None]] = []
        """Called on the training thread when steps have ended, several at once, with the last one's end."""
        self.on_budget: Callable[[], None] | None = None
        """Called on the training thread when the last step of the budget has ended, before the loop is left."""
        self.waits: Callable[[], bool] | None = None
        """Waits for the device of the loop; false where it has none that runs behind the host. Only a trial asks."""
        self.copied: Callable[[int, int, Any, Place], None] | None = None
        """Hears of every copy to or from a device that is no evaluation's, see `StepClock.copies`."""
        self.costly: Callable[[Mapping[Any, Sequence[float]]], None] | None = None
        """Hears of the costly calls in a step that has ended, see `Span.calls`."""
        self.looked: Callable[[Seen], None] | None = None
        """Hears in which phase a look of the line sampler fell, see `StepClock.looks`."""
        self.forward_number: int | None = None
        """Autograd's number of the newest operation of the last forward that was looked at."""
        self.marks: MarkReader | None = None
        self.windows: DeviceWindows | None = None
        """Says which steps are marked on the device."""
        self.unhear: list[Callable[[], None]] = []
        """Take everything of ours off the process, at once."""
        self.facts: dict[str, Any] = {}
        """Fields of Setup, as the taps find them: values, or functions that say what they are by now."""
        self.parts: dict[str, Callable[[], Any]] = {}
        """Further fields of Recording: functions that say them as of now; some are added up by several taps (chores,
        traffic, lines)."""
        self.loaders: dict[str, LoaderSetup] = {}
        self.met: list[weakref.ref[Any]] = []
        """Optimizers, models and loaders of the loop, for who must find them where no name leads to them."""
        self.read_losses: Callable[[list[Any]], list[float]] = list
        self.own_cpu_s: list[Callable[[], float]] = []
        """CPU seconds that our own threads have used, one function a thread."""
        self.searched_s, self.searches = 0.0, 0
        """What looking for models took on the training thread, and of how many optimizers."""
        self.notes: list[str] = []
        self.over = threading.Event()
        """Set when the run has ended."""
        self.retired = False
        self.started_at = time.time()
        self._readings: dict[str, Readings] = {}
        self._losses = KeptLosses()
        self._next_beat = 0
        self._closed_s: float | None = None
        self._noted = self._folded_ns = self._paused_ns = 0
        """Events so far, what folding them has cost, and how long a trial waited for the device between two steps."""
        self.governor = Governor(self.tapped_s, self.elapsed_s)
        """Shares out what watching may cost: asked by our own threads."""
        self._next_due(self._began, FIRST_DUE)

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

        Args:
            trains: the thread uses an optimizer. One that only pulls batches may be a prefetcher: it is taken for the
                training thread while nothing was heard of another, and makes way for one that trains.
        """
        if threading.get_ident() == self.thread:
            return True
        if self.retired or self.log.trains or (not trains and self.started()):
            return False
        self.log.thread, self.log.pulled = threading.get_ident(), False
        self.log.note((RESTART, self.clock(), None))
        return True

    def last_ns(self) -> int:
        """When the newest event was."""
        return self.log.events[-1][1] if self.log.events else self.step_clock.now

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
        for undo in (*reversed(self.unhear), *reversed(self.unhear)):  # once more: a second try may succeed
            with contextlib.suppress(Exception):
                undo()
        if not again:
            after = f"after {formatting.grouped(self.step_count)} steps" if self.step_count else "before the first step"
            self.note(f"gpu_doctor stopped recording {after} because of an error of its own: {error!r}.")

    def add(self, metric: Metric, at_clock: float, value: float) -> None:
        """One reading; `at_clock` in seconds of the host clock (`time.perf_counter`)."""
        key = series_key(metric)
        readings = self._readings.get(key)
        if readings is None:
            readings = self._readings[key] = Readings(metric)
        readings.add(at_clock - self._began * 1e-9, value)

    def meet(self, *objects: Any) -> None:
        """Remembers an optimizer, models or a loader for as long as they live."""
        self.met[:] = [*(ref for ref in self.met if ref() is not None), *map(weakref.ref, objects)]

    def freeze(self, part: str) -> None:
        """A field of `parts` stays as it is now."""
        value = self.parts[part]()
        self.parts[part] = lambda: value

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
        log, begin, paused = self.log, self.clock() if since is None else since, self._paused_ns
        if threading.get_ident() != log.thread:  # another one has become the training thread meanwhile
            return
        try:
            self._take(log.taken())
        except Exception:
            raise
        except BaseException:  # an interrupt: what is open is not known any more
            log.note((RESTART, self.clock(), None))
            raise
        begin += self._paused_ns - paused  # that is no part of any step
        now = log.ours(begin)
        self._folded_ns += now - begin
        self._next_due(now, min(2 * log.due, DUE))

    def _take(self, events: list[Event]) -> None:
        clock = self.step_clock
        self._noted += len(events)
        clock.fold(events, self.log.looks)
        count = clock.step_count - len(clock.steps)
        steps, losses, copies, looks = clock.found()
        for number, step in enumerate(steps, count):
            row = self.table.append(step.values)
            if self.marks is not None and step.marks is not None:
                self.marks.ended(row, step.marks, number)
            elif self.marks is not None:
                self.marks.rest()
            if self.costly is not None:
                for calls in step.calls:
                    self.costly(calls)
        if clock.device.spent and self.marks is not None:
            spent, clock.device.spent = clock.device.spent, []
            self.marks.clock.free(*spent)
        for at, loss in losses:
            self._losses.keep(at, loss)
        if self.copied is not None:
            for copy in copies:
                self.copied(*copy)
        if self.looked is not None:
            for look in looks:
                self.looked(look)
        if self.windows is not None:
            self._mark_on(len(steps), len(events))
        if steps:
            self._steps_ended(steps[-1].end_ns)

    def _mark_on(self, steps: int, events: int) -> None:
        """So many steps have ended, with so many events: the next ones are marked on the device, or not."""
        assert self.windows is not None
        before, self.log.marker = self.log.marker, self.windows.folded(steps, events, self.clock())
        if before is not None and self.log.marker is None:
            self.step_clock.device.stopped()

    def _steps_ended(self, now: int) -> None:
        for hear in tuple(self.on_step):
            hear(now)
        if not self.ending and (
            (self.max_steps is not None and self.step_count >= self.max_steps)
            or (self.deadline_ns is not None and now >= self.deadline_ns)
        ):
            self.log.ending = "budget-reached"
            if self.on_budget is not None:
                self.on_budget()
        if self.beat is not None and now >= self._next_beat:
            begin = self.clock()
            self.beat()
            took_s = (self.clock() - begin) * 1e-9
            allowed = self.governor.allowed("beat", took_s / BEAT_S)
            self._next_beat = now + round(1e9 * max(BEAT_S, min(took_s / allowed, LONGEST_BEAT_S)))

    def _next_due(self, now: int, due: int) -> None:
        """When the log is folded next: at once where somebody counts single steps, before a budget can be overrun."""
        log = self.log
        if self._each_step:
            due = 1
        elif log.marker is not None:
            due = min(due, MARKED_DUE)
        elif self.max_steps is not None:
            due = min(due, max(FEWEST_EVENTS * (self.max_steps - self.step_count), 1))
        if self.windows is not None:
            due = min(due, self.windows.due)
        log.due = due
        log.due_ns = now + DUE_NS if self.deadline_ns is None else min(now + DUE_NS, max(self.deadline_ns, now))

    def mark_no_more(self) -> None:
        """No step is marked on the device from here on."""
        if self.windows is not None:
            self.windows, self.log.marker = None, None
            self.step_clock.device.stopped()

    def loss_kept(self) -> None:
        """The loss of the open step was noted; says which one is to be kept next."""
        self.log.loss_at = self._losses.next_after(self.log.steps)

    def fold_each_step(self, each: bool = True) -> bool:
        """Every step is folded when it ends, or not any more: somebody counts what lies between two of them.

        Returns:
            Whether each was before.
        """
        before, self._each_step = self._each_step, each
        self.log.due = 1 if each else self.log.due
        return before

    def wait_for_device(self) -> bool:
        """Waits until the device has done all that was launched; false where there is none, or it cannot be waited for.

        Only for a trial, at an end of the stretch that it measures: the user's own run is never held up.
        """
        try:
            return self.waits is not None and self.waits()
        except Exception as error:  # such as what a kernel of the loop's own has failed with: the loop will hear of it
            self.note(f"The device could not be waited for, so its own clock alone times the steps: {error}")
            return False

    def pause_for_device(self) -> bool:
        """The same between two steps, right after one has ended: the time is neither's."""
        begin, cpu_ns = self.clock(), self.log.cpu_clock()
        waited = self.wait_for_device()
        now = self.clock()
        self._paused_ns += now - begin
        self.log.note((PAUSED, now, (begin, self.log.cpu_clock() - cpu_ns)))
        return waited

    def loop_over(self) -> None:
        """All taps are about to come off: what was noted is folded, and what is known of its end is settled."""
        try:
            self._take(self.log.taken())
            self.step_clock.asked_no_more()
        except Exception as error:
            self._give_up(error)

    # ---- read by views and by the judgement ---------------------------------------------------------------------

    def news(self, cursor: Cursor) -> News:
        """See `Feed.news`."""
        generation = self.table.generation
        reset = cursor.generation != generation
        start = 0 if reset else cursor.rows
        steps = self.table.steps(start)
        series, read = readings_since(self.series_now(), cursor.readings)
        return News(
            cursor=Cursor(generation, start + len(steps), read),
            steps=steps,
            series=series,
            reset=reset,
            elapsed_s=self.elapsed_s(),
            step_count=self.step_count,
            done=self._closed_s is not None,
        )

    def elapsed_s(self) -> float:
        """Seconds since the run began, of the whole run once it has ended."""
        return self._closed_s if self._closed_s is not None else (self.clock() - self._began) * 1e-9

    def tapped_s(self) -> float:
        """What the taps have cost the loop so far: their events at the calibrated cost of one, and the folds."""
        marks_ns = 0 if self.marks is None else self.marks.clock.spent_ns
        events = self._noted + len(self.log.events) - self.step_clock.device.events
        return (events * self._event_ns + self._folded_ns + marks_ns) * 1e-9

    def setup(self) -> Setup:
        """What was found so far."""
        known = {field.name for field in dataclasses.fields(Setup)}
        facts = {name: one() if callable(one) else one for name, one in self.facts.copy().items() if name in known}
        return Setup(**{**facts, "loaders": tuple(self.loaders.values())})

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
        for readings in list(self._readings.values()):
            readings.finish()
        self._closed_s = self.elapsed_s()
        losses = self._losses_read()  # which waits for the steps that they belong to: after it their marks are passed
        with contextlib.suppress(Exception):
            if self.marks is not None:
                self.marks.finish()
        loop_s = float(np.nansum(self.table.steps().wall_s))
        again_s = self.searched_s if self.searches > FEW_SEARCHES else 0.0
        if dear := too_dear(self.tapped_s(), loop_s, self.step_count, again_s):
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
                for span in tail:
                    if span.calls is not None and self.costly is not None:
                        self.costly(span.calls)
            if self.marks is not None:
                self.marks.rest()
                self.marks.read()
        except Exception as error:
            self._give_up(error)

    def _recording(self, outcome: str, reason: str, duration_s: float, losses: Losses) -> Recording:
        own_s = self.tapped_s() + self.searched_s + sum(one() for one in self.own_cpu_s)
        return Recording(
            steps=self.table.steps(),
            settings=self.settings,
            setup=self.setup(),
            outcome=outcome,
            reason=reason,
            series=self.series_now(),
            losses=losses,
            notes=tuple(self.notes),
            name=self.name,
            source=self.source,
            started_at=self.started_at,
            duration_s=duration_s,
            overhead_s=own_s,
            **{name: part() for name, part in self.parts.copy().items()},
        )

    def series_now(self) -> tuple[Series, ...]:
        """What every metric read so far."""
        return tuple(readings.series() for readings in list(self._readings.values()))

    def _losses_read(self) -> Losses:
        try:
            return self._losses.read(self.read_losses, self.table.steps())
        except Exception as error:
            self.note(f"The losses could not be read: {error}")
            return Losses()
