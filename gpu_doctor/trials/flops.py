"""Counts the floating-point operations of a trial's steps, never those of the user's own run.

torch's counter intercepts every operation and costs many microseconds each, so it is active only in a trial of a few
steps, whose times are not used. Compiled functions run uncompiled in it, because nothing can be counted in compiled
code.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch

from gpu_doctor.capture import Recorder
from gpu_doctor.recording.setup import Flops
from gpu_doctor.trials import run
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.results import left_behind
from gpu_doctor.trials.runner import Runner

STEPS: Final = 4
"""Steps of the trial: three whole ones from step's end to step's end, so that an evaluation in one is outvoted."""
FEWEST_STEPS: Final = 2
SECONDS: Final = 60.0


class NotCounted(RuntimeError):
    """Says why the operations of a step could not be counted."""


def counted(case: Runner, steps: int = STEPS, seconds: float = SECONDS) -> tuple[Flops, tuple[str, ...]]:
    """Runs a few steps of the code as written under torch's counter, and restores everything.

    Args:
        case: case whose code runs.
        steps: largest number of steps of the trial.
        seconds: time limit of the trial.

    Returns:
        The operations of a step, and sentences on what the trial could not restore. Matrix products, convolutions and
        attention of the forward and the backward pass are counted; sums, norms, activations and custom kernels are not.

    Raises:
        NotCounted: if no trial may begin, it did not come to a step, or nothing that is counted is computed in one.
        KeyboardInterrupt: if it is interrupted, after everything was put back.
        SnapshotTooLarge: if what must be put back does not fit into memory.
        ValueError: if steps or seconds are not positive.
        Busy: if a run is already being recorded in this process.
    """
    run.check_start(steps, seconds, "count")
    if refusal := beforehand(case).refusal:
        raise NotCounted(refusal)
    totals = list[float]()

    def began(recorder: Recorder) -> None:
        def ended(now: int) -> None:
            if not recorder.over.is_set():  # what is closed at the run's end may have ended long before
                totals.append(float(mode.get_total_flops()))

        recorder.listeners.on_steps(ended)
        recorder.plan.fold_each_step()

    with case.aside() as aside, _counting() as mode, case.unseen(began):
        result = case.once({}, "count", steps, seconds)
    recording = result.recording
    if isinstance(result.error, KeyboardInterrupt):
        raise KeyboardInterrupt
    if recording.setup.model is not None and recording.setup.model.wrapper == "DataParallel":
        raise NotCounted("DataParallel computes on its own threads, where operations cannot be counted.")
    found = flops_of(totals, recording.steps.samples.tolist())
    if found is None:
        raise NotCounted(_why(recording.outcome, recording.reason, len(totals)))
    return found, left_behind((), aside.lost)


@contextmanager
def _counting() -> Iterator[Any]:
    """Counts the operations of the calling thread and its autograd; yields torch's counter."""
    from torch.utils.flop_counter import FlopCounterMode  # imports much; only a count needs it

    with uncompiled(), FlopCounterMode(display=False) as mode:
        yield mode


def uncompiled() -> AbstractContextManager[Any]:
    """Returns a context in which compiled functions run as they are written: inside compiled code nothing is seen."""
    stance = getattr(torch.compiler, "set_stance", None)  # torch 2.6
    return nullcontext() if stance is None else stance("force_eager")


def flops_of(totals: Sequence[float], samples: Sequence[float]) -> Flops | None:
    """Returns the operations of a step: the median, so that an evaluation in one step does not count.

    Args:
        totals: operations so far, at each step's end.
        samples: samples of each step, in order; NaN if unknown.

    Returns:
        None where fewer than two steps ended, or nothing that is counted was computed.
    """
    # From one step's end to the next: before the first end may lie what the cell did before its loop.
    known = [after - before for before, after in itertools.pairwise(totals)]
    if not known or statistics.median(known) <= 0:
        return None
    rates = [flops / each for flops, each in zip(known, samples[1:], strict=False) if each > 0]
    per_sample = statistics.median(rates) if len(rates) == len(known) else None
    return Flops(statistics.median(known), per_sample, len(known))


def _why(outcome: str, reason: str, steps: int) -> str:
    if steps >= FEWEST_STEPS:
        return "The steps have no matrix product, convolution or attention that could be counted."
    why = f": {reason}" if reason else ""
    return f"The trial ended after {steps} steps, and a count needs {FEWEST_STEPS} (outcome: {outcome}{why})."
