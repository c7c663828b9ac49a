"""Runs one piece of code, for real or for a trial, and keeps what came of it: the part of a case that trials need."""

from __future__ import annotations

import functools
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_doctor.capture import Recorder
from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Diagnosis, judged
from gpu_doctor.recording import Recording, Settings, SettingValue, Setup
from gpu_doctor.trials import cell_code, interrupts, knobs
from gpu_doctor.trials import run as trial
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.pasted import Pasted, pasted
from gpu_doctor.trials.printed_aside import unwritten
from gpu_doctor.trials.results import Plan, Sweep
from gpu_doctor.trials.rounds import Rounds, not_restored, silence
from gpu_doctor.trials.side_budget import SideBudget
from gpu_doctor.trials.side_effects.kept_files import KeptFiles
from gpu_doctor.trials.snapshot.snapshot import Snapshot

TRIAL_STEPS: Final = 50
"""Of one side of one round, the warm-up among them, where nobody says otherwise."""
TRIAL_SECONDS: Final = 60.0
"""To measure in one trial, where nobody says otherwise."""
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
            trial_seconds: the same in seconds to measure.
        """
        self.name = name or f"run {next(_numbers)}"
        self.source = code if isinstance(code, str) else ""
        if namespace is None:
            namespace = {"__name__": "__main__"} if isinstance(code, str) else trial.globals_of(code)
        self.namespace = namespace
        self.trial_steps, self.trial_seconds = trial_steps, trial_seconds
        """Budget of a trial that is given none of its own: steps of a side, seconds to measure in all."""
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
        self.sweeping: Sweep | None = None
        """What there is so far of a sweep that goes on."""
        self.diagnosis: Diagnosis | None = None
        self.on_begin: Callable[[Recorder, str], None] | None = None
        """Told of every recorder that opens, with its role: `run`, `baseline`, `candidate`, or `probe` for a trial that
        is there for its memory alone."""
        self.made_of = code
        """The text or the callable."""
        self._execute = execute or cell_code.plain_execute(code, self.name)
        self._changed = changed or (self._changed_plainly if execute is None else None)
        self._compiled: tuple[str, Callable[..., Any]] | None = None
        self._silence = quietly or silence
        self._current: Recorder | None = None
        self._budget: SideBudget | None = None
        self._said = ""
        self._met: list[weakref.ref[Any]] = []
        self._entered: int | None = None
        """Of the cells of the notebook, how many had been run when the code ran last: a later one has no part in it."""
        self.made: dict[str, int] = {}
        """Names of the namespace that the newest run bound, with the ids of their values."""
        self._files: weakref.ref[KeptFiles] | None = None
        """Of the trial that is going on: they go with its snapshot."""
        self.stopped = False
        """Stop was asked for since the last trial, treatment or sweep of a person began."""
        self._requests = 0

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Around the sides of a trial: what they print is nobody's, what they handle of signals ends with them."""
        with interrupts.handlers_put_back(), unwritten(), self._silence():
            yield

    def once(
        self, settings: Settings, role: str, max_steps: int | None, max_s: float | None, text: str = ""
    ) -> trial.Result:
        """One run, recorded; what the code raises is part of the result.

        Args:
            settings: knob values.
            role: `run` for the user's own, else that of a trial's side.
            max_steps: the budget in steps.
            max_s: the budget in seconds, which of a trial's side begin when it is warm (see `SideBudget`).
            text: the cell with the settings written in, which a candidate runs instead, and no knob is turned.
        """
        text = text if role == "candidate" else ""
        borrowed, self._entered = role != "run", len(cell_code.entered(self.namespace))
        before = {} if borrowed else {name: id(one) for name, one in self.namespace.items()}
        limits: dict[str, Any] = {"max_steps": max_steps, "max_s": None if borrowed else max_s}
        recorder = Recorder(settings=settings, name=self.name, source=text or self.source, **limits)
        budget = SideBudget(recorder, max_s, max_steps) if borrowed and max_s is not None else None
        try:
            self._current, self._budget = recorder, budget
            if self.on_begin is not None:
                self.on_begin(recorder, role)
            run, turned = (self._execute, settings) if not text else (self._of(text), {})
            execute: Callable[[], Any] = functools.partial(run, self.namespace)
            # Of a trial; without a snapshot nothing is put back, and what is kept goes with the side.
            kept = ((self._files and self._files()) or KeptFiles()) if borrowed else None
            how: dict[str, Any] = {"settings": turned, "found": self.found, "met": self._met}
            return trial.run(execute, recorder, self.namespace, borrowed=kept, budget=budget, **how)
        finally:
            if not borrowed:
                self.made = {name: id(one) for name, one in self.namespace.items() if before.get(name) != id(one)}
            self._current, self._budget, self._met = None, None, recorder.met or self._met

    def _of(self, text: str) -> Callable[..., Any]:
        """What runs a changed text of the cell, compiled once for all rounds of a trial."""
        if self._compiled is None or self._compiled[0] != text:
            assert self._changed is not None
            self._compiled = text, self._changed(text)
        return self._compiled[1]

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
    def requested(self) -> Iterator[None]:
        """Around what a person asks for: a Stop of before is forgotten, one of a treatment holds for all its trials."""
        if not self._requests:
            self.stopped = False
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def stop(self) -> None:
        """Ends the run or trial that is going on; may be called on any thread."""
        self.stopped = True
        recorder = self._current
        if recorder is not None:
            interrupts.stop(recorder)

    @property
    def progress(self) -> str:
        """What a running trial is at, for people: `round 1, until it is clear: baseline, setting up, 12 s so far`."""
        said, budget = self._said, self._budget
        stage = budget.stage() if said and budget is not None else ""
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
        files = KeptFiles()
        aside = Aside(self, Snapshot.take(self.namespace, self.roots(), to_host=to_host, files=files))
        self._files = weakref.ref(files)
        try:
            with self.quietly():
                yield aside
        finally:
            self.say("")
            with interrupts.uninterrupted():
                aside.notes = aside.snapshot.restore()

    def measured_aside(self, steps: int, seconds: float) -> tuple[Recording, tuple[str, ...]]:
        """A recording of the code as written, put back afterwards, and clauses on what could not be put back."""
        kept: list[Recording] = []
        with self.aside() as aside:
            aside.rounds().side({}, "baseline", steps, seconds, kept)
        recording = replace(kept[0], notes=(*kept[0].notes, *aside.notes))
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

    def pasted(self, settings: Settings) -> Pasted:
        """The cell's own text with some settings written in, or why a trial cannot run that."""
        try:
            found = pasted(self.fix(settings), self.source, self._changed is not None)
            if found.text:
                self._of(found.text)
        except Exception as error:  # a text that defeats us is no reason to lose a trial
            return Pasted(why_not=f"the change could not be written into the cells ({type(error).__name__})")
        return found

    def _meant(self, settings: Settings) -> dict[str, SettingValue]:
        given = knobs.as_settings(settings)
        knobs.meant(given, self.found or Setup())
        return given
