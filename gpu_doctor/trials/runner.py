"""Runs one piece of code, for real or for a trial, and keeps what came of it: the part of a case that trials need."""

from __future__ import annotations

import functools
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_doctor.capture import NvtxRanges, Recorder
from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Diagnosis, judged
from gpu_doctor.job import Job
from gpu_doctor.recording import Recording, Settings, SettingValue, Setup
from gpu_doctor.trials import allowing, cell_code, interrupts, knobs
from gpu_doctor.trials import run as trial
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.launched_ranks import Ranks
from gpu_doctor.trials.look.result import Look
from gpu_doctor.trials.plan import Plan
from gpu_doctor.trials.printed_aside import mute_streams
from gpu_doctor.trials.results import Largest, Sweep
from gpu_doctor.trials.rounds import BLOCK_SHARE, Rounds, not_restored, silence
from gpu_doctor.trials.side_budget import SideBudget
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.written import NO_TEXT, Written, not_written

TRIAL_STEPS: Final = 50
"""Default steps of one side of a pair, including warm-up."""
TRIAL_SECONDS: Final = 20.0
"""Default time limit of a trial, in seconds."""
STAYS: Final = "It stays changed until you load it again."
_numbers = itertools.count(1)


@dataclass
class Aside:
    """The stored state from which trials of a case run; it is restored after each side, and at the end."""

    case: Runner
    snapshot: Snapshot
    notes: tuple[str, ...] = ()
    """Clauses on what could not be restored; filled at the end."""

    @property
    def lost(self) -> tuple[str, ...]:
        """All clauses on what could not be restored."""
        return not_restored(self.snapshot.unrestorable, self.notes)

    def rounds(self, **more: Any) -> Rounds:
        """Returns a trial whose sides run the case's code; `more` are further fields of `Rounds`."""
        case = self.case
        how: dict[str, Any] = {"once": case.once, "stopped": lambda: case.stopped, "runs": case.recordings, **more}
        return Rounds(restore=self.snapshot, say=case.say, **how)


class Runner:
    """Runs code under settings and stores its history. Trials use its namespace and restore everything."""

    def __init__(
        self,
        code: str | Callable[[], Any],
        namespace: dict[str, Any] | None = None,
        *,
        name: str = "",
        execute: Callable[..., Any] | None = None,
        quietly: Callable[[], AbstractContextManager[Any]] | None = None,
        changed: Callable[[str], Callable[..., Any]] | None = None,
        trial_steps: int = TRIAL_STEPS,
        trial_seconds: float = TRIAL_SECONDS,
        price: float | None = None,
    ) -> None:
        """Prepares to run code without running it.

        Args:
            code: text of a cell, or a callable without arguments.
            namespace: namespace in which it runs.
            name: name for the user.
            execute: runs the code as a notebook does; None for plain Python.
            quietly: returns a context that captures a trial's output as a notebook does.
            changed: compiles a changed text of the cell and returns a function that runs it; None for plain Python, if
                `execute` is None, too.
            trial_steps: default steps of each side of a trial.
            trial_seconds: default time limit of a trial, in seconds.
            price: cost of this machine in dollars per hour; None if unknown.
        """
        self.name = name or f"run {next(_numbers)}"
        self.source = code if isinstance(code, str) else ""
        if namespace is None:
            namespace = {"__name__": "__main__"} if isinstance(code, str) else trial.globals_of(code)
        self.namespace = namespace
        self.trial_steps, self.trial_seconds = trial_steps, trial_seconds
        """Default budget of a trial: steps of each side, seconds of the whole trial."""
        self.price = price
        """Cost of this machine in dollars per hour, with which reports price losses and cures."""
        self.recordings: list[Recording] = []
        """Recordings of the runs, oldest first (trials are in `trials`)."""
        self.trials: list[tuple[Recording, Recording]] = []
        """Baseline and candidate of the last round of every trial, oldest first."""
        self.effects: list[Effect] = []
        """Effects of all trials, oldest first, including interrupted trials."""
        self.plans: list[Plan] = []
        """Plans of the treatments, oldest first; an interrupted treatment has its plan so far."""
        self.sweeps: list[Sweep] = []
        """Results of the sweeps, oldest first, including interrupted sweeps."""
        self.largest: Largest | None = None
        """Result of the newest search for the largest batch."""
        self.job: Job | None = None
        """Ranks that the newest run started; None if it started none."""
        self._ranks: Ranks | None = None
        self.looked: Look | None = None
        """Result of the newest deep look."""
        self.sweeping: Sweep | None = None
        """Results so far of a running sweep; None if none runs."""
        self.diagnosis: Diagnosis | None = None
        self.nvtx = False
        """True to write the steps and phases of the user's own runs as NVTX ranges."""
        self.on_begin: Callable[[Recorder, str], None] | None = None
        """Called with every recorder that opens and its role: `run`, `baseline`, `candidate`, or `probe` for a run that
        only measures memory."""
        self.made_of = code
        """Text or callable of the code."""
        self._execute = execute or cell_code.plain_execute(code, self.name)
        self._changed = changed or (self._changed_plainly if execute is None else None)
        self._compiled = {self.source: self._execute}
        self._written: tuple[dict[str, Any], Setup, Written] | None = None
        self._silence = quietly or silence
        self._current: Recorder | None = None
        self._budget: SideBudget | None = None
        self._said = ""
        self._met: list[weakref.ref[Any]] = []
        self._entered: int | None = None
        """Number of the notebook's cells that had been run when the code ran last: later cells have no part in it."""
        self.made: dict[str, int] = {}
        """Names of the namespace that the newest run bound, with the ids of their values."""
        self._snapshot: weakref.ref[Snapshot] | None = None
        """Snapshot of the running trial."""
        self.stopped = False
        """True if Stop was pressed since the user's last trial, treatment or sweep began."""
        self._requests = 0
        self.allowed: frozenset[str] = frozenset()
        """Permissions that the user gives the running trials, see `allowing.PERMISSIONS`."""
        self.reached: dict[str, str] = {}
        """Missing permission -> call of a side that needed it, since the newest run; no text shows such a call."""

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Mutes the sides of a trial inside the context, and restores the signal handlers that they set."""
        with interrupts.handlers_put_back(), mute_streams(), self._silence():
            yield

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None) -> trial.Result:
        """Runs and records the code once; an exception of the code is part of the result.

        Args:
            settings: settings, which are written into the text that runs if possible (see `written`).
            role: `run` for the user's own run, else the role of a trial's side.
            max_steps: budget in steps; None for no limit.
            max_s: budget in seconds, which for a trial's side begin after its warm-up (see `SideBudget`); None for no
                limit.
        """
        borrowed, self._entered = role != "run", len(cell_code.entered(self.namespace))
        self._written = self._written if borrowed else None  # an earlier cell may have been run again since
        own_function = role == "run" and callable(self.made_of)  # it keeps its name, which nothing would restore
        written = not_written(settings, NO_TEXT, "") if own_function else self.written(settings)
        before = {} if borrowed else {name: id(value) for name, value in self.namespace.items()}
        own = {name: self.namespace[name] for name in written.anew & self.namespace.keys()}
        limits: dict[str, Any] = {"max_steps": max_steps, "max_s": None if borrowed else max_s}
        recorder = Recorder(settings=settings, name=self.name, source=written.text, **limits)
        budget = SideBudget(recorder, max_s, max_steps) if borrowed and max_s is not None else None
        ranges = NvtxRanges() if self.nvtx and not borrowed else None
        ranks = Ranks()
        try:
            if ranges is not None:
                ranges.follow(recorder)
            self._current, self._budget = recorder, budget
            if self.on_begin is not None:
                self.on_begin(recorder, role)
            execute: Callable[[], Any] = functools.partial(self._executor_of(written.text), self.namespace)
            how: dict[str, Any] = {"settings": settings, "found": self.found, "met": self._met}
            how |= {"reasons": written.reasons, "borrowed": borrowed, "budget": budget, "allowed": self.allowed}
            how["around"] = nullcontext() if borrowed else ranks.recorded()
            # In no variable: the traceback of its error knows this frame.
            return self._permitted(trial.run(execute, recorder, self.namespace, **how), borrowed)
        finally:
            if ranges is not None:
                ranges.close()
            self.namespace.update(own)
            if not borrowed:
                self._ranks, self.job = ranks, ranks.job()
                self.reached = {}
                self.made = {name: id(value) for name, value in self.namespace.items() if before.get(name) != id(value)}
            self._current, self._budget, self._met = None, None, recorder.remembered or self._met

    def _permitted(self, result: trial.Result, borrowed: bool) -> trial.Result:
        """The result; of a side a refusal where it did what nobody allows, which the case remembers."""
        snapshot = self._snapshot() if borrowed and self._snapshot is not None else None
        if result.reached is not None:
            self.reached[result.reached[0]] = result.reached[1]
        elif snapshot is not None and allowing.LARGE_DATA not in self.allowed and (data := snapshot.changed_data()):
            self.reached[allowing.LARGE_DATA] = data[0]
            why = allowing.refusal(allowing.LARGE_DATA, data)
            result.recording = replace(result.recording, outcome="refused", reason=f"{why} {STAYS}")
        return result

    def _executor_of(self, text: str) -> Callable[..., Any]:
        """Returns the function that runs a text of the cell, compiled once for all rounds of a trial."""
        if text not in self._compiled:
            assert self._changed is not None
            self._compiled[text] = self._changed(text)
        return self._compiled[text]

    def _changed_plainly(self, text: str) -> Callable[..., Any]:
        return cell_code.plain_execute(text, f"{self.name} with the change")

    @property
    def found(self) -> Setup | None:
        """The setup that the newest run or trial baseline as written found, None before any."""
        return None if self.baseline is None else self.baseline.setup

    @property
    def baseline(self) -> Recording | None:
        """The newest run as written, or the newest trial's baseline as written."""
        bases = [base for base, _ in self.trials]
        plain = [recording for recording in self.recordings if not recording.settings] or [
            recording for recording in bases if not recording.settings
        ]
        return plain[-1] if plain else None

    @contextmanager
    def requested(self, allow: Any = ()) -> Iterator[None]:
        """Encloses an action of the user: it clears an earlier Stop; a Stop of a treatment holds for all its trials.

        Args:
            allow: see `permitted`.
        """
        with self.permitted(allow):
            if not self._requests:
                self.stopped, self._written = False, None
            self._requests += 1
            try:
                yield
            finally:
                self._requests -= 1

    @contextmanager
    def permitted(self, allow: Any) -> Iterator[None]:
        """Gives permissions to the trials inside the context, in addition to those of an outer context.

        Raises:
            TypeError: if it is no collection of texts. ValueError: if one of them is unknown.
        """
        before = self.allowed
        self.allowed = before | allowing.checked(allow)
        try:
            yield
        finally:
            self.allowed = before

    def stop(self) -> None:
        """Ends the run or trial that is going on; may be called on any thread."""
        self.stopped = True
        recorder = self._current
        if recorder is not None:
            interrupts.stop(recorder)

    @property
    def progress(self) -> str:
        """Stage of a running trial, for the user: `round 1, until it is clear: baseline, setting up, 12 s so far`."""
        said, budget, recorder = self._said, self._budget, self._current
        stage = budget.stage() if said and budget is not None else ""
        if recorder is not None:
            stage = interrupts.held_up(recorder) or stage
        return f"{said}, {stage}" if stage else said

    def say(self, progress: str) -> None:
        """Sets the stage of a running trial that is shown to the user."""
        self._said = progress

    def roots(self) -> tuple[Any, ...]:
        """Returns the objects that a snapshot copies besides the namespace.

        These are what the code is made of, and the optimizers, models and loaders remembered in its newest run that
        remembered any. Collects garbage if one of these has no name.
        """
        named = {id(value) for value in self.namespace.values()}
        if any(ref() is not None and id(ref()) not in named for ref in self._met):
            gc.collect()  # a model that only a reference cycle holds is unused: copying its state would cost memory
        return (self.made_of, *(value for ref in self._met if (value := ref()) is not None))

    @contextmanager
    def aside(self, to_host: bool = False) -> Iterator[Aside]:
        """Stores the state that trials may change, mutes their output, and restores everything at the end.

        Args:
            to_host: True to store no copies on a device, whose memory is to be measured.

        Raises:
            SnapshotTooLarge: if what must be put back does not fit into memory.
            KeyboardInterrupt: if it is interrupted, after everything was put back.
        """
        aside = Aside(self, Snapshot.take(self.namespace, self.roots(), to_host=to_host))
        self._snapshot = weakref.ref(aside.snapshot)
        try:
            with self.quietly():
                yield aside
        finally:
            self.say("")
            with interrupts.uninterrupted():
                aside.notes = aside.snapshot.restore()

    @contextmanager
    def unseen(self, begin: Callable[[Recorder], None]) -> Iterator[None]:
        """Hides runs from the live view, because their times include those of a counter or profiler.

        While it is active, `begin` is called in place of `on_begin`.

        Args:
            begin: called with each recorder that opens.
        """
        outer, self.on_begin = self.on_begin, lambda recorder, role: begin(recorder)
        try:
            yield
        finally:
            self.on_begin = outer

    def measured_aside(self, steps: int, seconds: float) -> tuple[Recording, tuple[str, ...]]:
        """Records the code as written, restores the state, and returns clauses on what could not be restored, too."""
        kept: list[Recording] = []
        with self.aside() as aside:
            aside.rounds().side({}, "baseline", steps, BLOCK_SHARE * seconds, kept)
        recording = replace(kept[0], notes=(*kept[0].notes, *aside.notes))
        if recording.outcome == "refused":
            return recording, aside.lost
        self.trials.append((recording, recording))
        self.diagnosis = self.diagnosis or judged(recording)[0]
        return recording, aside.lost

    # ---- the code with settings written in ------------------------------------------------------------------------

    def code(self, settings: Settings) -> str:
        """The lines to paste for some settings, one block a knob.

        Raises:
            Refused: if a name is no knob, or a value none that it has.
        """
        return cell_code.lines_to_paste(self._checked_settings(settings), self.found)

    def fix(self, settings: Settings, history: Sequence[str] | None = None) -> Fix:
        """Returns the change to the user's own cells that gives them some settings, see `cell_code.fix_of`."""
        given = self._checked_settings(settings)
        return cell_code.fix_of(
            self.made_of, self.source, self.namespace, self.found or Setup(), given, history, self._entered
        )

    def written(self, settings: Settings) -> Written:
        """Returns the text that a run under some settings executes, and the settings that knobs turn instead."""
        if not settings:
            return Written(self.source)
        source = cell_code.text_of(self.made_of, self.namespace)
        if not source or self._changed is None:
            return not_written(settings, NO_TEXT, self.source)
        found = self.found or Setup()
        if self._written is None or self._written[0] != settings or self._written[1] is not found:
            self._written = dict(settings), found, self._written_anew(source, settings, found)
        return self._written[2]

    def unturnable(self, settings: Settings) -> str:
        """Returns the reason why some settings can be neither written nor turned; '' if all can."""
        return knobs.unturnable(settings, self.found or Setup(), self.written(settings).reasons)

    def _written_anew(self, source: str, settings: Settings, found: Setup) -> Written:
        try:
            made = cell_code.written_into(source, self.namespace, found, settings, self._entered)
            if made.text == source:
                return replace(made, text=self.source)
            self._executor_of(made.text)
        except Exception as error:  # a text that we cannot change is no reason to lose a trial
            why = f"The change could not be written into the cells ({type(error).__name__})."
            return not_written(settings, why, self.source)
        return made

    def _checked_settings(self, settings: Settings) -> dict[str, SettingValue]:
        given = knobs.as_settings(settings)
        knobs.meant(given, self.found or Setup())
        return given
