"""Collects what taps and probes report while a run goes on, and turns it into a frozen recording.

Each list in it has one writer: the training thread writes the ledger and the losses, the poller the readings and the
line costs. Readers on other threads slice by cursor. There is no lock: a reader that is one row late is fine, a
training loop that waits for a reader is not.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gpu_doctor.capture.cost import WRAPPED, Governor, event_cost_ns, note_cost_ns, too_dear
from gpu_doctor.capture.ledger import Ledger
from gpu_doctor.capture.rests import AS_NOTES
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording import (
    Cursor,
    Fetch,
    LineCost,
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
from gpu_doctor.recording.steps import samples_before

DENSE_LOSSES: Final = 256
"""The loss of so many steps is kept one by one, later of every SPARSE_LOSSES-th."""
SPARSE_LOSSES: Final = 64
MOST_LOSSES: Final = 4096
"""Losses kept at most (a detached one holds about half a kilobyte); of the later ones every other goes then."""
FEW_SEARCHES: Final = 8
"""Optimizers that a loop may well have: each is looked for once, at its begin."""
BEAT_S: Final = 0.5
LONGEST_BEAT_S: Final = 5.0
MOST_READINGS: Final = 16384
"""Readings kept per metric (over two hours at 2 Hz), an even number; then each is the mean of twice as many."""


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
            settings: what the knobs are turned to. name, source: of the run, for people.
            max_steps, max_s: budget; when it is spent, `ending` is set and the taps leave the loop at its next step.
            sync_measured: whether waits for a device are tapped.
            clock: host clock in nanoseconds.
        """
        self.settings, self.name, self.source = dict(settings or {}), name, source
        self.clock = clock
        self.table = StepTable()
        self.ledger = Ledger(self.table, clock, sync_measured=sync_measured)
        self.ledger.on_step = self._step_ended
        if max_steps is not None:
            self.ledger.look_at = max_steps
        # A trial's sides are compared by the losses of all their steps: each of these must be heard.
        self.ledger.steady.rests.allowed = max_steps is None and max_s is None
        self.pulse = self.ledger.pulse
        self.max_steps = max_steps
        self.deadline_ns = None if max_s is None else clock() + round(max_s * 1e9)
        self.beat: Callable[[], None] | None = None
        """Called on the training thread twice a second at most, where a view cannot be reached from another thread."""
        self.facts: dict[str, Any] = {}
        """Fields of Setup, as the taps find them: values, or functions that say what they are by now."""
        self.parts: dict[str, Callable[[], Any]] = {}
        """Further fields of Recording that taps add up (chores, traffic): functions that say them as of now."""
        self.loaders: dict[str, LoaderSetup] = {}
        self.met: list[weakref.ref[Any]] = []
        """Optimizers, models and loaders of the loop, for who must find them where no name leads to them."""
        self.fetched: Callable[[], tuple[Fetch, ...]] = tuple
        self.lined: Callable[[], tuple[LineCost, ...]] = tuple
        self.read_losses: Callable[[list[Any]], list[float]] = list
        self.peak_bytes: Callable[[], float] = lambda: float("nan")
        self.own_cpu_s: list[Callable[[], float]] = []
        """CPU seconds that our own threads have used, one function a thread."""
        self.searched_s, self.searches = 0.0, 0
        """What looking for models took on the training thread, and of how many optimizers."""
        self.notes: list[str] = []
        self.over = threading.Event()
        """Set when the run has ended."""
        self.retired = False
        self.started_at = time.time()
        self._began = self.ledger.began
        self._readings: dict[str, Readings] = {}
        self._losses: list[tuple[int, Any]] = []
        self._next_beat = 0
        self._loss_every = SPARSE_LOSSES
        self._closed_s: float | None = None
        self._event_ns, self._note_ns = event_cost_ns(clock), note_cost_ns(clock)
        self.governor = Governor(self.tapped_s, self.elapsed_s)
        """Shares out what watching may cost: asked by our own threads."""

    @property
    def thread(self) -> int:
        """The training thread's id."""
        return self.pulse.thread

    @property
    def ending(self) -> str:
        """Outcome with which the loop shall be left at its next step; empty = go on."""
        return self.pulse.ending

    # ---- written by taps and probes -----------------------------------------------------------------------------

    def mine(self) -> bool:
        """True on the training thread; what other threads do is not accounted."""
        return threading.get_ident() == self.thread

    def adopt(self, trains: bool = False) -> bool:
        """Makes the calling thread the training thread if none has trained yet; returns whether it is.

        Args:
            trains: the thread uses an optimizer. One that only pulls batches may be a prefetcher: it is taken for the
                training thread while nothing was heard of another, and makes way for one that trains.
        """
        if threading.get_ident() == self.thread:
            return True
        if self.retired or self.ledger.any_optimizer or (self.ledger.started and not trains):
            return False
        self.pulse.thread = threading.get_ident()
        self.ledger.begin()
        return True

    def retire(self) -> None:
        """No thread is the training thread any more: wrappers that other code has kept only call what they wrap.

        It takes no lock: a process that was forked from the run is told too.
        """
        self.retired = True
        self.pulse.thread = 0

    def add(self, metric: Metric, at_clock: float, value: float) -> None:
        """One reading; `at_clock` in seconds of the host clock (`time.perf_counter`)."""
        key = series_key(metric)
        readings = self._readings.get(key)
        if readings is None:
            readings = self._readings[key] = Readings(metric)
        readings.add(at_clock - self._began * 1e-9, value)

    def loss(self, tensor: Any) -> None:
        """The detached loss of the open step; it is read when the book closes, so that no step waits for it."""
        step = self.ledger.step_count
        if step >= self.pulse.loss_next:
            self._losses.append((step, tensor))
            if len(self._losses) >= MOST_LOSSES:
                self._losses[DENSE_LOSSES:] = self._losses[DENSE_LOSSES::2]
                self._loss_every *= 2
            every = self._loss_every
            self.pulse.loss_next = step + 1 if step + 1 < DENSE_LOSSES else (step // every + 1) * every

    def meet(self, *objects: Any) -> None:
        """Remembers an optimizer, models or a loader for as long as they live."""
        self.met[:] = [*(ref for ref in self.met if ref() is not None), *map(weakref.ref, objects)]

    def note(self, text: str) -> None:
        """One sentence for the footer, once."""
        if text not in self.notes:
            self.notes.append(text)

    def stop(self) -> None:
        """Asks the loop to end at its next step; may be called on any thread."""
        self.pulse.ending = self.ending or "stopped"

    def check_end(self) -> None:
        """Leaves the loop if its end was asked for; called by taps where leaving is clean.

        Raises:
            RunEnded: if the budget is spent or Stop was asked for.
        """
        if self.ending:
            raise RunEnded(self.ending)

    def _step_ended(self, now: int) -> None:
        if not self.ending and (
            (self.max_steps is not None and self.ledger.step_count >= self.max_steps)
            or (self.deadline_ns is not None and now >= self.deadline_ns)
        ):
            self.pulse.ending = "budget-reached"
        if self.beat is not None and now >= self._next_beat:
            self.beat()
            took_s = (self.clock() - now) * 1e-9
            allowed = self.governor.allowed("beat", took_s / BEAT_S)
            self._next_beat = now + round(1e9 * max(BEAT_S, min(took_s / allowed, LONGEST_BEAT_S)))

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
            step_count=self.ledger.step_count,
            done=self._closed_s is not None,
        )

    def elapsed_s(self) -> float:
        """Seconds since the run began, of the whole run once it has ended."""
        return self._closed_s if self._closed_s is not None else (self.clock() - self._began) * 1e-9

    def tapped_s(self) -> float:
        """What the taps have cost the loop so far: their events at the calibrated cost of one."""
        steady = self.ledger.steady
        told = self.ledger.events - steady.noted
        noted = WRAPPED * steady.noted + AS_NOTES * steady.rests.rested
        marks_ns = 0 if self.ledger.windows is None else self.ledger.windows.spent_ns
        return (told * self._event_ns + noted * self._note_ns + steady.spent_ns + marks_ns) * 1e-9

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
            outcome: one of `recording.OUTCOMES`. reason: one sentence where it is not `completed`.
        """
        self.over.set()
        self.ledger.finish()
        self.ledger.steady.forget()
        for readings in list(self._readings.values()):
            readings.finish()
        self._closed_s = self.elapsed_s()
        if said := self.ledger.steady.rests.said():
            self.note(said)
        loop_s = float(np.nansum(self.table.steps().wall_s))
        again_s = self.searched_s if self.searches > FEW_SEARCHES else 0.0
        if dear := too_dear(self.tapped_s(), loop_s, self.ledger.step_count, again_s):
            self.note(dear)
        return self._recording(outcome, reason, self._closed_s, self._losses_read())

    def _recording(self, outcome: str, reason: str, duration_s: float, losses: Losses) -> Recording:
        own_s = self.tapped_s() + self.searched_s + sum(one() for one in self.own_cpu_s)
        return Recording(
            steps=self.table.steps(),
            settings=self.settings,
            setup=self.setup(),
            outcome=outcome,
            reason=reason,
            series=self.series_now(),
            fetches=self.fetched(),
            lines=self.lined(),
            losses=losses,
            notes=tuple(self.notes),
            name=self.name,
            source=self.source,
            started_at=self.started_at,
            duration_s=duration_s,
            overhead_s=own_s,
            peak_bytes=self.peak_bytes(),
            **{name: part() for name, part in self.parts.copy().items()},
        )

    def series_now(self) -> tuple[Series, ...]:
        """What every metric read so far."""
        return tuple(readings.series() for readings in list(self._readings.values()))

    def _losses_read(self) -> Losses:
        kept, self._losses = self._losses, []
        if not kept:
            return Losses()
        try:
            values = np.asarray(self.read_losses([tensor for _, tensor in kept]), dtype=np.float64)
        except Exception as error:
            self.note(f"The losses could not be read: {error}")
            return Losses()
        at = np.asarray([step for step, _ in kept], dtype=np.float64)
        return Losses(step=at, samples=samples_before(self.table.steps(), at), value=values)


class Readings:
    """The readings of one metric. One thread writes, any may read."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.stride = 1
        """Readings that one which is kept is the mean of."""
        self._kept: tuple[list[float], list[float]] = [], []  # in one assignment, so that a reader sees both thinned
        self._open: list[tuple[float, float]] = []

    def add(self, at_s: float, value: float) -> None:
        """One reading."""
        times, values = self._kept
        if len(values) >= MOST_READINGS:
            times, values = (np.asarray(one).reshape(-1, 2).mean(axis=1).tolist() for one in self._kept)
            self._kept = times, values
            self.stride *= 2
        if self.stride > 1:
            self._open.append((at_s, value))
            if len(self._open) >= self.stride:
                self.finish()
            return
        times.append(at_s)
        values.append(value)

    def finish(self) -> None:
        """Puts down what waits for its neighbours, at the run's end."""
        if self._open:
            at_s, value = np.mean(self._open, axis=0).tolist()
            self._kept[0].append(at_s)
            self._kept[1].append(value)
            self._open = []

    def series(self) -> Series:
        """What was read so far, but for a last mean that is not whole."""
        times, values = self._kept
        n = min(len(times), len(values))
        return Series(self.metric, np.asarray(times[:n]), np.asarray(values[:n]))
