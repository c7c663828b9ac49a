"""Counts what a step of a case computes, on a trial of its own: everything is put back afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from gpu_doctor import formatting
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis.diagnosis import judged
from gpu_doctor.recording.setup import Flops
from gpu_doctor.trials import run
from gpu_doctor.trials.cardmemory import Memory
from gpu_doctor.trials.flops import FlopMeter
from gpu_doctor.trials.largest_batch import SECONDS as SEARCH_SECONDS
from gpu_doctor.trials.largest_batch import Largest, largest_batch
from gpu_doctor.trials.rounds import not_restored
from gpu_doctor.trials.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from gpu_doctor.trials.case import Case

STEPS: Final = 4
"""Steps of the trial: three whole ones from step's end to step's end, so that an evaluation in one is outvoted."""
FEWEST_STEPS: Final = 2
SECONDS: Final = 60.0


class NotCounted(RuntimeError):
    """The operations of a step could not be counted; the message says why."""


def count_flops(case: Case, *, steps: int = STEPS, seconds: float = SECONDS) -> Flops:
    """Runs a few steps of the code as written under torch's counter, and puts everything back.

    Args:
        case: whose code. steps, seconds: budget of the trial.

    Returns:
        What a step computes. Matrix products, convolutions and attention are counted, of the forward and the backward
        pass; sums, norms and activations are not, nor what a kernel of one's own does.

    Raises:
        NotCounted: if the trial did not come to a step, or nothing that is counted is computed in one.
        KeyboardInterrupt: if it is interrupted, after everything was put back.
        SnapshotTooLarge: if what must be put back does not fit into memory.
        ValueError: if steps or seconds are not positive.
        trial.Busy: if a run is already being recorded in this process.
    """
    return _counted(case, steps, seconds)[0]


def _counted(case: Case, steps: int, seconds: float) -> tuple[Flops, tuple[str, ...]]:
    """See `count_flops`; the count, and sentences on what the trial left behind."""
    run.check_budget(steps, seconds)
    if run.running() is not None:
        raise run.Busy("A run is being recorded in this process: wait for its end, then count.")
    meter, outer = FlopMeter(), case.on_begin

    def began(recorder: Recorder, role: str) -> None:
        after = recorder.ledger.on_step

        def ended(now: int) -> None:
            if not recorder.over.is_set():  # what is closed at the run's end may have ended long before
                meter.step_ended()
            if after is not None:
                after(now)

        recorder.ledger.on_step = ended
        # Each step by itself, no blocks.
        recorder.ledger.steady.step_ended = lambda pull, before, key=0: before  # type: ignore[method-assign]

    snapshot = Snapshot.take(case.namespace, extra=case.roots())
    notes: tuple[str, ...] = ()
    try:
        case.on_begin = began  # a view does not follow this one: its times are the counter's
        with case._quietly(), meter.counting():
            result = case._once({}, "count", steps, seconds)
    finally:
        case.on_begin = outer
        with run.uninterrupted():
            notes = snapshot.restore()
    recording = result.recording
    if isinstance(result.error, KeyboardInterrupt):
        raise KeyboardInterrupt
    wrapped = recording.setup.model is not None and recording.setup.model.wrapper == "DataParallel"
    if wrapped:
        raise NotCounted("DataParallel computes on threads of its own, where nothing is counted.")
    found = meter.flops(recording.steps.samples.tolist())
    if found is None:
        raise NotCounted(_why(recording.outcome, recording.reason, len(meter.totals)))
    return found, formatting.left_behind(recording.written or (), not_restored(snapshot.unrestorable, notes))


class Counting:
    """What a case can find out by trials of its own besides the effect of settings."""

    def largest_batch(self, *, memory: Memory | None = None, seconds: float = SEARCH_SECONDS) -> Largest:
        """The largest batch that the GPU's memory holds, and the one best for samples/s, in at most three trials.

        See `batchfinder.largest_batch`.
        """
        return largest_batch(cast("Case", self), memory=memory, seconds=seconds)

    def flops(self, *, steps: int = STEPS, seconds: float = SECONDS) -> Flops:
        """Counts what a step computes, on a trial of a few steps; see `count_flops`.

        The newest run as written keeps the count, so that its diagnosis says what the loop computes in a second and,
        on a card whose peak is known, which share of it that is. What the trial left behind, such as files that it
        wrote, is among that run's notes.
        """
        case = cast("Case", self)
        found, left = _counted(case, steps, seconds)
        runs = case.recordings
        at = next((n for n in reversed(range(len(runs))) if not runs[n].settings), None)
        if at is not None:
            runs[at] = replace(runs[at], flops=found, notes=tuple(dict.fromkeys((*runs[at].notes, *left))))
            if at == len(runs) - 1:
                case.diagnosis, runs[at] = judged(runs[at])
        return found


def _why(outcome: str, reason: str, steps: int) -> str:
    if steps >= FEWEST_STEPS:
        return "The steps have no matrix product, convolution or attention that could be counted."
    why = f": {reason}" if reason else ""
    return f"The trial came to the end of {steps} steps, and a count needs {FEWEST_STEPS} (outcome: {outcome}{why})."
