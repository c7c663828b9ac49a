"""Runs one piece of code, for real or for a trial, and keeps what came of it: the part of a case that trials need."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from gpu_doctor.capture import Recorder
from gpu_doctor.cell import Fix
from gpu_doctor.diagnosis import Diagnosis, judged
from gpu_doctor.recording import Recording, Settings, SettingValue, Setup
from gpu_doctor.trials import cell_code, interrupts, knobs
from gpu_doctor.trials import run as trial
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.results import Plan, Sweep
from gpu_doctor.trials.rounds import not_restored, silence
from gpu_doctor.trials.snapshot.snapshot import Snapshot, unrestorable

TRIAL_STEPS: Final = 50
TRIAL_SECONDS: Final = 60.0
_numbers = itertools.count(1)


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
    ) -> None:
        """Nothing is run yet.

        Args:
            code: the text of a cell, or a callable without arguments. namespace: where it runs. name: for people.
            execute, quietly: let a notebook run the code and swallow a trial's output in its own way.
        """
        self.name = name or f"run {next(_numbers)}"
        self.source = code if isinstance(code, str) else ""
        if namespace is None:
            namespace = {"__name__": "__main__"} if isinstance(code, str) else trial.globals_of(code)
        self.namespace = namespace
        self.recordings: list[Recording] = []
        """The runs, oldest first (trials are in `trials`)."""
        self.trials: list[tuple[Recording, Recording]] = []
        """Baseline and candidate of the last round of every trial, oldest first."""
        self.effects: list[Effect] = []
        """What every trial gave, oldest first, one that was interrupted among them."""
        self.plans: list[Plan] = []
        """What treatments arrived at, oldest first; of one that was interrupted, what was verified until then."""
        self.sweeps: list[Sweep] = []
        """What sweeps found, oldest first, interrupted ones among them."""
        self.diagnosis: Diagnosis | None = None
        self.progress: str = ""
        """What a running trial is at, for people."""
        self.on_begin: Callable[[Recorder, str], None] | None = None
        """Told of every recorder that opens, with its role: `run`, `baseline`, `candidate`, or `probe` for a trial that
        is there for its memory alone."""
        self.made_of = code
        """The text or the callable."""
        self._execute = execute or cell_code.plain_execute(code, self.name)
        self._silence = quietly or silence
        self._current: Recorder | None = None
        self._met: list[weakref.ref[Any]] = []
        self.stopped = False
        """Stop was asked for since the last trial or treatment began."""

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Around the sides of a trial: what they print is nobody's, what they handle of signals ends with them."""
        with interrupts.handlers_put_back(), self._silence():
            yield

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None) -> trial.Result:
        """One run, recorded; what the code raises is part of the result.

        Args:
            settings: knob values. role: `run` for the user's own, else that of a trial's side.
            max_steps, max_s: the budget.
        """
        recorder = Recorder(settings=settings, name=self.name, source=self.source, max_steps=max_steps, max_s=max_s)
        try:
            self._current = recorder
            if self.on_begin is not None:
                self.on_begin(recorder, role)
            execute, found = cell_code.side(self._execute, self.namespace, settings, self.found)
            borrowed = role != "run"
            return trial.run(execute, recorder, self.namespace, settings=settings, found=found, borrowed=borrowed)
        finally:
            self._current, self._met = None, recorder.met or self._met

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

    def stop(self) -> None:
        """Ends the run or trial that is going on; may be called on any thread."""
        self.stopped = True
        recorder = self._current
        if recorder is not None:
            trial.stop(recorder)

    def say(self, progress: str) -> None:
        """Tells people what a trial is at."""
        self.progress = progress

    def roots(self) -> tuple[Any, ...]:
        """What a snapshot begins with besides the namespace: the code, and what its newest run trained with."""
        named = {id(value) for value in self.namespace.values()}
        if any(ref() is not None and id(ref()) not in named for ref in self._met):
            gc.collect()  # a model that only a circle keeps is nobody's: keeping its state would cost memory
        return (self.made_of, *(one for ref in self._met if (one := ref()) is not None))

    def unrestorable(self) -> tuple[str, ...]:
        """What a trial could not put back as things stand, by name, such as `it (generator)`; changes nothing."""
        return unrestorable(self.namespace, extra=self.roots())

    def measured_aside(self, steps: int, seconds: float) -> tuple[Recording, tuple[str, ...]]:
        """A recording of the code as written, put back afterwards, and clauses on what could not be put back."""
        snapshot = Snapshot.take(self.namespace, extra=self.roots())
        notes: tuple[str, ...] = ()
        try:
            with self.quietly():
                result = self.once({}, "baseline", steps, seconds)
        finally:
            with trial.uninterrupted():
                notes = snapshot.restore()
        if isinstance(result.error, KeyboardInterrupt):
            raise KeyboardInterrupt
        recording = replace(result.recording, notes=(*result.recording.notes, *notes))
        self.trials.append((recording, recording))
        self.diagnosis = self.diagnosis or judged(recording)[0]
        return recording, not_restored(snapshot.unrestorable, notes)

    # ---- the code with settings written in ------------------------------------------------------------------------

    def code(self, settings: Settings) -> str:
        """The lines to paste for some settings, one block a knob.

        Raises:
            Refused: if a name is no knob, or a value none that it has.
        """
        return cell_code.lines_to_paste(self._meant(settings), self.found, self.source)

    def fix(self, settings: Settings, history: Sequence[str] | None = None) -> Fix:
        """The change of the user's own cells that gives them some settings: see `cell_code.fix_of`."""
        return cell_code.fix_of(
            self.made_of, self.source, self.namespace, self.found or Setup(), self._meant(settings), history
        )

    def _meant(self, settings: Settings) -> dict[str, SettingValue]:
        given = knobs.as_settings(settings)
        knobs.meant(given, self.found or Setup())
        return given
