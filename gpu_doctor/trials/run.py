"""Runs the code once under settings and a budget, with knobs, taps and probes, and returns its recording.

The first run of a cell goes through here as well as every trial, so that both are measured by the same means. Whatever
the code raises is handed back beside the recording, untouched: who called decides whether it passes on.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from inspect import unwrap
from pathlib import Path
from typing import Any, Final

from gpu_doctor.capture import Busy, Recorder, RunEnded, recorded, running
from gpu_doctor.recording import Recording, Settings, Setup
from gpu_doctor.trials import allowing, arguments, knobs
from gpu_doctor.trials.interrupts import Interrupts, StepGuard, end, ends_on_threads, noted
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.side_budget import SideBudget
from gpu_doctor.trials.side_effects.begun_threads import waited_for
from gpu_doctor.trials.side_effects.leftover_workers import parked
from gpu_doctor.trials.side_effects.reach_guard import ReachGuard
from gpu_doctor.trials.side_effects.redirection import Redirection
from gpu_doctor.trials.side_effects.trackers import unlogged
from gpu_doctor.trials.stretch import Stretch

_NO_MEMORY: Final = ("out of memory", "can't allocate memory", "not enough memory")
"""Texts of torch's plain RuntimeError for missing memory: CUDA and MPS, the CPU's allocator on Linux, and on Windows
(c10/core/impl/alloc_cpu.cpp: "DefaultCPUAllocator: can't allocate memory", "... not enough memory: you tried to")."""

_OURS: Final = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class AlreadyShown:
    """Outcome of code whose error its runner has already shown: it is not raised again."""

    outcome: str
    reason: str

    @classmethod
    def of(cls, error: BaseException) -> AlreadyShown:
        """Builds it without the error, whose traceback would keep the loop's memory alive."""
        return cls(*outcome_of(error))


@dataclass
class Result:
    """The result of one execution: its recording, and the exception that ended it, if any."""

    recording: Recording
    error: BaseException | None = None
    reached: tuple[str, str] | None = None
    """The permission that the side would have needed, and what needed it."""


def run(
    execute: Callable[[], Any],
    recorder: Recorder,
    namespace: dict[str, Any],
    *,
    settings: Settings | None = None,
    reasons: Mapping[str, str] | None = None,
    found: Setup | None = None,
    met: Sequence[weakref.ref[Any]] = (),
    borrowed: bool = False,
    budget: SideBudget | None = None,
    allowed: Collection[str] = (),
    around: AbstractContextManager[object] | None = None,
) -> Result:
    """Executes the code once under settings and records it.

    Args:
        execute: runs the code; an error that it returns as `AlreadyShown` is the run's outcome.
        recorder: a fresh one, with its budget in steps.
        namespace: namespace in which the code runs.
        settings: knob values; empty = as written.
        reasons: settings that the executed text does not have, with the reason; None if it has none of them.
        found: setup of an earlier run, from which knobs know what to change.
        met: objects that the earlier run used.
        borrowed: True for a trial's side: it writes files to a scratch folder, leaves workers of an earlier run alone,
            and reports nothing to experiment trackers.
        budget: budget in seconds; a side that reaches no further step is ended.
        allowed: permissions of a trial's side; a side that needs another one is ended before it reaches out.
        around: context entered while the code runs, and left before an interrupt is delivered.

    Returns:
        The recording, and the exception that ended the code. An end that we caused (budget, Stop) is no exception.

    Raises:
        Busy: if a run is already being recorded in this process.
    """
    guard, interrupts = StepGuard(), Interrupts()
    scope = TrialScope(namespace, found or Setup(), reasons, met=met, in_trial=borrowed)
    files = Redirection(namespace) if borrowed else None
    stretch = Stretch(recorder) if borrowed else None
    reach = ReachGuard(allowed) if borrowed else None

    def asked() -> None:
        recorder.log.ending = recorder.ending or "interrupted"  # where the code handles it, its next step is the end

    with ExitStack() as stack:
        ours = noted(lambda: guard.ended or recorder.ending == "stopped", asked)
        came = stack.enter_context(ours) if borrowed else []
        stack.callback(interrupts.release)
        if files is not None:
            stack.enter_context(files)
            if files.refusal:
                return Result(recorder.close("refused", files.refusal))
            stack.enter_context(waited_for(namespace, scope.notes))
        try:
            stack.enter_context(knobs.turned(dict(settings or {}), scope))
        except Refused as refusal:
            return Result(recorder.close("refused", str(refusal)))
        if around is not None:
            stack.enter_context(around)
        stack.enter_context(recorded(recorder, namespace))
        if borrowed:
            stack.callback(gc.enable if gc.isenabled() else gc.disable)  # no snapshot's: it is off while one is taken
            stack.enter_context(parked(scope.notes))
            stack.enter_context(unlogged(scope.notes))
        if reach is not None:
            stack.enter_context(reach)
        stack.callback(interrupts.hold)  # when the code has ended: a second interrupt must not leave our patches on
        ended = _executed(execute, recorder, stretch, guard, budget)
    try:
        interrupts.deliver()
    except KeyboardInterrupt as late:
        ended = _End("interrupted", error=late.with_traceback(None))
    reached = None if reach is None else reach.reached
    refused = "" if files is None else files.refusal
    if reached is not None:
        refused = allowing.refusal(reached[0], reached[1:])
    ended = _overruled(ended, guard, refused, bool(came))
    for note in (*scope.notes, *(files.notes if files is not None else ())):
        recorder.note(note)
    try:
        recording = recorder.close(ended.outcome, ended.reason)
        if ended.stuck and len(recording.steps):  # the last step is counted at the close
            recording = replace(recording, reason="")
        if files is None or stretch is None:
            return Result(recording, ended.error)
        timed = stretch.timed(recording)
        return Result(replace(recording, timed=timed), ended.error, reached)
    finally:
        del ended  # the frames of its error's traceback know this one: a circle would keep the loop's memory


@dataclass(frozen=True)
class _End:
    """The way the code ended: outcome, reason, exception."""

    outcome: str
    reason: str = ""
    error: BaseException | None = None
    stuck: bool = False
    """True if the run was ended because it reached no further step; `reason` is used only if it has no step at all."""


def _executed(
    execute: Callable[[], Any],
    recorder: Recorder,
    stretch: Stretch | None,
    guard: StepGuard,
    budget: SideBudget | None,
) -> _End:
    """Executes the code; no variable holds its error, whose traceback knows this frame."""
    try:
        try:
            if budget is not None:
                guard.begin(budget)
            with ends_on_threads(RunEnded) as ended_there:
                returned = execute()
            if stretch is not None:
                stretch.loop_over()
            if isinstance(returned, AlreadyShown):
                stopped = returned.outcome == "interrupted" and recorder.ending == "stopped"
                return _End("stopped") if stopped else _End(returned.outcome, returned.reason)
            return _End(next(iter(ended_there), "completed"))
        finally:
            # Before the loop's frames are let go: a late Stop must not interrupt a loader that ends its workers.
            end(recorder)
    except (RunEnded, Refused) as ours:
        return _End(*outcome_of(ours))
    except BaseException as raised:
        outcome, reason = outcome_of(raised)
        stopped = outcome == "interrupted" and recorder.ending == "stopped"
        return _End("stopped") if stopped else _End(outcome, reason, _users(raised))


def outcome_of(error: BaseException) -> tuple[str, str]:
    """Returns outcome and reason of code that raised an error, ours included."""
    if isinstance(error, RunEnded):
        return str(error), ""
    if isinstance(error, Refused):
        return "refused", str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", ""
    if isinstance(error, SystemExit) and not error.code:  # `exit()` behind the loop is an end like any other
        return "completed", ""
    return "out-of-memory" if is_out_of_memory(error) else "failed", reason_of(error)


def _overruled(ended: _End, guard: StepGuard, refusal: str, interrupted: bool) -> _End:
    """Returns the end that we or the user asked for, even if the code caught an interrupt or a refusal."""
    if guard.ended and ended.outcome not in ("stopped", "out-of-memory"):
        ended = _End("budget-reached", guard.reason, stuck=True)
    if refusal:
        ended = _End("refused", refusal)
    if interrupted:  # the user wants the trial to end
        own = isinstance(ended.error, KeyboardInterrupt)
        ended = _End("interrupted", error=ended.error if own else KeyboardInterrupt())
    return ended


def _users(error: BaseException) -> BaseException:
    """Returns the exception with a traceback that begins in the user's code, without our frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return error.with_traceback(trace)


def is_out_of_memory(error: BaseException) -> bool:
    """True for torch's out-of-memory errors of any device, the CPU's allocator among them, and Python's own."""
    named = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    said = str(error).lower()
    return named or (isinstance(error, RuntimeError) and any(text in said for text in _NO_MEMORY))


def globals_of(code: Callable[[], Any]) -> dict[str, Any]:
    """Returns the globals of a callable's function; a new dict if it has none, such as a callable object.

    Of a decorated one they are those of the function behind: torch.no_grad() puts one of torch's own around it.
    """
    found: dict[str, Any] = getattr(unwrap(getattr(code, "func", code)), "__globals__", {})
    return found


def check_budget(steps: int | None, seconds: float | None) -> None:
    """Checks a budget; None is no limit.

    Raises:
        ValueError: if it leaves no step to measure, or is no number.
    """
    if steps is not None:
        arguments.whole(steps, "steps", 50)
    if seconds is not None:
        arguments.seconds(seconds, "seconds", 60)


def check_start(steps: int | None, seconds: float | None, then: str) -> None:
    """Checks that a trial can begin: valid budget, and nothing else being recorded.

    Args:
        steps: budget.
        seconds: the same.
        then: name of the action that follows, for the user.

    Raises:
        ValueError: if a budget leaves no step to measure, or is no number.
        Busy: if a run is already being recorded in this process.
    """
    check_budget(steps, seconds)
    if running() is not None:
        raise Busy(f"A run is being recorded in this process: wait for its end, then {then}.")


def baseline_ended(ended: Recording) -> str:
    """Returns the reason of a trial that ended because its baseline failed, which the settings did not cause."""
    own = ended.outcome in ("failed", "out-of-memory")
    return f"also without the change: {ended.reason}" if own else ended.reason


def reason_of(error: BaseException) -> str:
    """Returns one line for a recording on the error that ended it."""
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("Caught ") and "worker process" in lines[0]:
        return f"{lines[-1]} (in a DataLoader worker)"  # torch puts the worker's traceback before its error
    if len(lines) > 1 and lines[0].endswith(":"):  # torch.compile names its backend first: the next line says it
        lines[0] += f" {lines[1].strip()}"
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
