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
from gpu_doctor.trials.look.looked import Look
from gpu_doctor.trials.plan import Plan
from gpu_doctor.trials.printed_aside import mute_streams
from gpu_doctor.trials.results import Largest, Sweep
from gpu_doctor.trials.rounds import BLOCK_SHARE, Rounds, not_restored, silence
from gpu_doctor.trials.side_budget import SideBudget
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.written import NO_TEXT, Written, not_written

TRIAL_STEPS: Final = 50
"""Of one side of one round, the warm-up among them, where nobody says otherwise."""
TRIAL_SECONDS: Final = 20.0
"""Of one trial, where nobody says otherwise."""
STAYS: Final = "It stays changed until you load it again."
_numbers = itertools.count(1)


@dataclass
class Aside:
    """Trials of a case from the same state, which is put back after each side, and at the end."""

    case: Runner
    snapshot: Snapshot
    notes: tuple[str, ...] = ()
    """Sentences on what could not be put back; there at the end."""

    @property
    def lost(self) -> tuple[str, ...]:
        """Clauses on what could not be put back."""
        return not_restored(self.snapshot.unrestorable, self.notes)

    def rounds(self, **more: Any) -> Rounds:
        """Sides that run the case's code; `more`: see `Rounds`."""
        case = self.case
        how: dict[str, Any] = {"once": case.once, "stopped": lambda: case.stopped, "runs": case.recordings, **more}
        return Rounds(restore=self.snapshot, say=case.say, **how)


class Runner:
    """Runs code under settings, and has the history of it. Trials borrow its namespace and put everything back."""

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
        """Nothing is run yet.

        Args:
            code: the text of a cell, or a callable without arguments.
            namespace: where it runs.
            name: for people.
            execute: lets a notebook run the code in its own way.
            quietly: lets it swallow a trial's output in its own way.
            changed: makes what runs another text of the cell; None = plain Python, where `execute` is not given.
            trial_steps: budget of a trial that is given none of its own, in steps of a side.
            trial_seconds: the same in seconds.
            price: dollars that an hour of this machine costs; None where nobody said.
        """
        self.name = name or f"run {next(_numbers)}"
        self.source = code if isinstance(code, str) else ""
        if namespace is None:
            namespace = {"__name__": "__main__"} if isinstance(code, str) else trial.globals_of(code)
        self.namespace = namespace
        self.trial_steps, self.trial_seconds = trial_steps, trial_seconds
        """Budget of a trial that is given none of its own: steps of a side, seconds in all."""
        self.price = price
        """Dollars that an hour of this machine costs: reports say with it what a loss costs and what a cure saves."""
        self.recordings: list[Recording] = []
        """The runs, oldest first (trials are in `trials`)."""
        self.trials: list[tuple[Recording, Recording]] = []
        """Baseline and candidate of the last round of every trial, oldest first."""
        self.effects: list[Effect] = []
        """What every trial gave, oldest first, one that was interrupted among them."""
        self.plans: list[Plan] = []
        """What treatments arrived at, oldest first; of one that was interrupted, what was kept until then."""
        self.sweeps: list[Sweep] = []
        """What sweeps found, oldest first, interrupted ones among them."""
        self.largest: Largest | None = None
        """What the newest search for the largest batch found."""
        self.job: Job | None = None
        """The ranks that the newest run started, side by side; None where it started none."""
        self._ranks: Ranks | None = None
        self.looked: Look | None = None
        """What the newest deep look found."""
        self.sweeping: Sweep | None = None
        """What there is so far of a sweep that goes on."""
        self.diagnosis: Diagnosis | None = None
        self.nvtx = False
        """The user's own runs write their steps and phases as NVTX ranges."""
        self.on_begin: Callable[[Recorder, str], None] | None = None
        """Told of every recorder that opens, with its role: `run`, `baseline`, `candidate`, or `probe` for a trial that
        is there for its memory alone."""
        self.made_of = code
        """The text or the callable."""
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
        """Of the cells of the notebook, how many had been run when the code ran last: a later one has no part in it."""
        self.made: dict[str, int] = {}
        """Names of the namespace that the newest run bound, with the ids of their values."""
        self._snapshot: weakref.ref[Snapshot] | None = None
        """Of the trial that is going on."""
        self.stopped = False
        """Stop was asked for since the last trial, treatment or sweep of a person began."""
        self._requests = 0
        self.allowed: frozenset[str] = frozenset()
        """What the person allows the trials that are going on: see `allowing.PERMISSIONS`."""
        self.reached: dict[str, str] = {}
        """What a side did without leave since the newest run, though no text shows it: permission -> the call."""

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Around the sides of a trial: what they print is nobody's, what they handle of signals ends with them."""
        with interrupts.handlers_put_back(), mute_streams(), self._silence():
            yield

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None) -> trial.Result:
        """One run, recorded; what the code raises is part of the result.

        Args:
            settings: knob values, which are written into the text that is run where they can be (see `written`).
            role: `run` for the user's own, else that of a trial's side.
            max_steps: the budget in steps.
            max_s: the budget in seconds, which of a trial's side begin when it is warm (see `SideBudget`).
        """
        borrowed, self._entered = role != "run", len(cell_code.entered(self.namespace))
        self._written = self._written if borrowed else None  # an earlier cell may have been run again since
        own_function = role == "run" and callable(self.made_of)  # which keeps its name: nothing puts that back
        written = not_written(settings, NO_TEXT, "") if own_function else self.written(settings)
        before = {} if borrowed else {name: id(one) for name, one in self.namespace.items()}
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
            execute: Callable[[], Any] = functools.partial(self._of(written.text), self.namespace)
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
                self.made = {name: id(one) for name, one in self.namespace.items() if before.get(name) != id(one)}
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

    def _of(self, text: str) -> Callable[..., Any]:
        """What runs the cell, or a changed text of it, compiled once for all rounds of a trial."""
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
        plain = [one for one in self.recordings if not one.settings] or [one for one in bases if not one.settings]
        return plain[-1] if plain else None

    @contextmanager
    def requested(self, allow: Any = ()) -> Iterator[None]:
        """Around what a person asks for: a Stop of before is forgotten, one of a treatment holds for all its trials.

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
        """Around trials that may do what a person allows, and what those around them may.

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
        """What a running trial is at, for people: `round 1, until it is clear: baseline, setting up, 12 s so far`."""
        said, budget, recorder = self._said, self._budget, self._current
        stage = budget.stage() if said and budget is not None else ""
        if recorder is not None:
            stage = interrupts.held_up(recorder) or stage
        return f"{said}, {stage}" if stage else said

    def say(self, progress: str) -> None:
        """Tells people what a trial is at."""
        self._said = progress

    def roots(self) -> tuple[Any, ...]:
        """What a snapshot begins with besides the namespace: the code, and what its newest run trained with."""
        named = {id(value) for value in self.namespace.values()}
        if any(ref() is not None and id(ref()) not in named for ref in self._met):
            gc.collect()  # a model that only a circle keeps is nobody's: keeping its state would cost memory
        return (self.made_of, *(one for ref in self._met if (one := ref()) is not None))

    @contextmanager
    def aside(self, to_host: bool = False) -> Iterator[Aside]:
        """Around trials: what they may change is kept, what they print is nobody's, and all is put back at the end.

        Args:
            to_host: nothing is kept on a device, whose memory is to be measured.

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
        """Around a side that no view follows: its times are those of what counts or profiles it.

        Args:
            begin: is given the recorder of the side when it opens.
        """
        outer, self.on_begin = self.on_begin, lambda recorder, role: begin(recorder)
        try:
            yield
        finally:
            self.on_begin = outer

    def measured_aside(self, steps: int, seconds: float) -> tuple[Recording, tuple[str, ...]]:
        """A recording of the code as written, put back afterwards, and clauses on what could not be put back."""
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
        return cell_code.lines_to_paste(self._meant(settings), self.found)

    def fix(self, settings: Settings, history: Sequence[str] | None = None) -> Fix:
        """The change of the user's own cells that gives them some settings: see `cell_code.fix_of`."""
        given = self._meant(settings)
        return cell_code.fix_of(
            self.made_of, self.source, self.namespace, self.found or Setup(), given, history, self._entered
        )

    def written(self, settings: Settings) -> Written:
        """What a run under some settings executes: the cell with what can be written into it, and what is turned."""
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
        """Why no run under some settings may begin, where they are neither written nor turned; empty if it may."""
        return knobs.unturnable(settings, self.found or Setup(), self.written(settings).reasons)

    def _written_anew(self, source: str, settings: Settings, found: Setup) -> Written:
        try:
            made = cell_code.written_into(source, self.namespace, found, settings, self._entered)
            if made.text == source:
                return replace(made, text=self.source)
            self._of(made.text)
        except Exception as error:  # a text that defeats us is no reason to lose a trial
            said = f"The change could not be written into the cells ({type(error).__name__})."
            return not_written(settings, said, self.source)
        return made

    def _meant(self, settings: Settings) -> dict[str, SettingValue]:
        given = knobs.as_settings(settings)
        knobs.meant(given, self.found or Setup())
        return given
