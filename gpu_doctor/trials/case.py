"""One piece of code under treatment: its runs, diagnosis, verified effects, and the plan that cures it.

A run is the user's: whole, in their namespace, exceptions untouched. A trial borrows the namespace: everything it can
reach is put back bit for bit afterwards, and baseline and candidate alternate (A B A B) from the same state. The trial
uses the namespace itself and not a copy of it, because functions of earlier cells read their globals there.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis.diagnosis import Diagnosis, judged
from gpu_doctor.recording import Recording, Settings, Setup
from gpu_doctor.trials import arguments, cell_code, interrupts, knobs, race
from gpu_doctor.trials import run as trial
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.counting import Counting
from gpu_doctor.trials.curing import TRIAL_SECONDS, TRIAL_STEPS, Curing
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.morepairs import MOST_PAIRS
from gpu_doctor.trials.rounds import not_restored, silence
from gpu_doctor.trials.snapshot.snapshot import Snapshot, unrestorable

if TYPE_CHECKING:
    from gpu_doctor.trials.sweep import Sweep
    from gpu_doctor.trials.treatment_plan import Plan

_numbers = itertools.count(1)
_last: list[Case] = []


class Case(Counting, Curing):
    """The history of one cell (or function): run it, try settings on it, let it be treated."""

    def __init__(
        self,
        code: str | Callable[[], Any],
        namespace: dict[str, Any] | None = None,
        *,
        name: str = "",
        execute: Callable[..., Any] | None = None,
        quietly: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> None:
        """See `case`; `execute` and `quietly` let a notebook run the code and swallow a trial's output its own way."""
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
        self._code = code
        self._execute = execute or cell_code.plain_execute(code, self.name)
        self._silence = quietly or silence
        self._current: Recorder | None = None
        self._met: list[weakref.ref[Any]] = []
        self.stopped = False
        """Stop was asked for since the last trial or treatment began."""
        if trial.running() is None:  # code inside a recorded run may make cases of its own
            _last[:] = [self]

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Around the sides of a trial: what they print is nobody's, what they handle of signals ends with them."""
        with interrupts.handlers_put_back(), self._silence():
            yield

    # ---- runs ---------------------------------------------------------------------------------------------------

    def run(
        self, settings: Settings | None = None, *, steps: int | None = None, seconds: float | None = None
    ) -> Recording:
        """Runs the code whole, in the namespace, and records it.

        Args:
            settings: knob values to run it under; None or empty = as written.
            steps, seconds: leave the loop after so many steps or seconds (what follows the loop is then not run).

        Returns:
            The recording, also the newest of `recordings`.

        Raises:
            Whatever the code raises, untouched, after the recording was kept.
            Refused: if a setting cannot be honoured.
            ValueError: if steps or seconds are not positive.
            trial.Busy: if a run is already being recorded in this process.
        """
        __tracebackhide__ = True
        trial.check_budget(steps, seconds)
        result = self._once(knobs.as_settings(settings), "run", steps, seconds)
        if result.recording.outcome == "refused":
            raise Refused(result.recording.reason)
        self.recordings.append(result.recording)
        self.diagnosis, self.recordings[-1] = judged(result.recording)
        if result.error is not None:
            try:
                raise result.error
            finally:
                del result  # the error's traceback holds this frame: a circle would keep the loop's memory
        return self.recordings[-1]

    def _once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None) -> trial.Result:
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

    # ---- trials -------------------------------------------------------------------------------------------------

    def trial(
        self,
        settings: Settings,
        *,
        steps: int = TRIAL_STEPS,
        seconds: float = TRIAL_SECONDS,
        pairs: int = MOST_PAIRS,
        against: Settings | None = None,
    ) -> Effect:
        """Tries settings against the code as written, from the same state, and puts everything back.

        Args:
            settings: knob values to try. steps: steps of one side of one round; more in the next where they last too
            short a time to be judged. seconds: of the whole trial. pairs: of runs, at most; fewer where it is clear.
            against: knob values of the baseline side; None = as written.

        Returns:
            The effect, also the newest of `effects`. A refusal, a failure and an out-of-memory are outcomes of it.

        Raises:
            KeyboardInterrupt: if the trial is interrupted, after everything was put back; what it measured until then
                is the newest of `effects`.
            ValueError: if steps, seconds or pairs are not positive.
            trial.Busy: if a run is already being recorded in this process.
        """
        return race.tried(self, [settings], steps=steps, seconds=seconds, pairs=pairs, against=against)[0]

    def _say(self, progress: str) -> None:
        self.progress = progress

    def roots(self) -> tuple[Any, ...]:
        """What a snapshot begins with besides the namespace: the code, and what its newest run trained with."""
        named = {id(value) for value in self.namespace.values()}
        if any(ref() is not None and id(ref()) not in named for ref in self._met):
            gc.collect()  # a model that only a circle keeps is nobody's: keeping its state would cost memory
        return (self._code, *(one for ref in self._met if (one := ref()) is not None))

    def unrestorable(self) -> tuple[str, ...]:
        """What a trial could not put back as things stand, by name, such as `it (generator)`; changes nothing."""
        return unrestorable(self.namespace, extra=self.roots())

    def measured(self, *, steps: int = TRIAL_STEPS, seconds: float = TRIAL_SECONDS) -> Recording:
        """A recording of the code as written, made like a trial's side: everything is put back afterwards.

        Raises:
            KeyboardInterrupt: if it is interrupted.
            SnapshotTooLarge: if what must be put back does not fit into memory.
            ValueError: if steps or seconds are not positive.
        """
        trial.check_budget(steps, seconds)
        return self._measured(steps, seconds)[0]

    def _measured(self, steps: int, seconds: float) -> tuple[Recording, tuple[str, ...]]:
        """See `measured`; the recording, and clauses on what could not be put back."""
        snapshot = Snapshot.take(self.namespace, extra=self.roots())
        notes: tuple[str, ...] = ()
        try:
            with self._quietly():
                result = self._once({}, "baseline", steps, seconds)
        finally:
            with trial.uninterrupted():
                notes = snapshot.restore()
        if isinstance(result.error, KeyboardInterrupt):
            raise KeyboardInterrupt
        recording = replace(result.recording, notes=(*result.recording.notes, *notes))
        self.trials.append((recording, recording))
        self.diagnosis = self.diagnosis or judged(recording)[0]
        return recording, not_restored(snapshot.unrestorable, notes)


def case(code: str | Callable[[], Any], namespace: dict[str, Any] | None = None, *, name: str = "") -> Case:
    """A case for some code.

    Args:
        code: the text of a cell, or a callable without arguments.
        namespace: where the text runs, such as `globals()`; None = a new one (for a callable: its own globals).
        name: for people.

    Raises:
        SyntaxError: if the text does not compile.
        TypeError: if `code` is neither text nor a callable that needs no argument, `namespace` no dict, `name` no text.
        ValueError: if the text is empty.
    """
    arguments.code(code)
    arguments.names(namespace, name)
    return Case(code, namespace, name=name)


def last_case() -> Case | None:
    """The newest case of this process, such as that of the last `%%gpudoctor` cell; None before any."""
    return _last[-1] if _last else None
