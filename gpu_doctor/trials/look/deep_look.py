"""Runs a few steps of a case under torch.profiler, then again to find the callers, and restores everything afterwards.

The user's own run is never profiled: the profiler records an event for every operator, and tracing Python costs more.
"""

from __future__ import annotations

import gzip
import linecache
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gpu_doctor import formatting
from gpu_doctor.capture import Recorder, follow
from gpu_doctor.capture.describe import named
from gpu_doctor.labels import PHASE_LABELS
from gpu_doctor.machine import torch_memory
from gpu_doctor.recording import Recording
from gpu_doctor.recording.steps import Steps
from gpu_doctor.trials import run
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.flops import uncompiled
from gpu_doctor.trials.look.callers import Callers
from gpu_doctor.trials.look.operators import costliest, marked, on_tensor_cores
from gpu_doctor.trials.look.result import APART, Look, PhaseShare
from gpu_doctor.trials.results import left_behind
from gpu_doctor.trials.runner import Runner

STEPS: Final = 5
SECONDS: Final = 60.0
WARM: Final = 3
"""Steps before the profiled steps, in which allocators and autotuners settle as far as possible."""
CALLED: Final = 2
"""Steps of the run that counts callers: the second step has no first-time work."""
_MARKS: Final = (
    (
        "data_wait",
        "enumerate(DataLoader)",
        "the profiler marks each batch, not the start of the iterator at an epoch",
        "the profiler also marks the batches of an evaluation, which is a separate phase here",
    ),
    (
        "backward",
        "autograd::engine::evaluate_function",
        "the profiler marks nodes of the graph, not the whole call",
        "the profiler marks nodes of the graph wherever they run, which may be in another phase here",
    ),
    (
        "optimizer",
        "Optimizer.step",
        "the profiler marks step() alone; here the phase includes zero_grad() and a scaler",
        "the profiler marks the whole of step(); here the work of its closure is in other phases",
    ),
)
"""Phase, beginning of the names of the profiler's own marks, why our share may be larger, why the profiler's may be."""
OTHER_PROFILER: Final = "The cell runs its own profiler, and torch allows one at a time: remove it for the deep look."
_EDGE: Final = "gpu_doctor: edge of the look"


class NoLook(RuntimeError):
    """Raised if no step could be profiled; the message says why."""


def look(case: Runner, steps: int = STEPS, seconds: float = SECONDS) -> Look:
    """Profiles a few steps of the code as written, and restores everything.

    Args:
        case: case whose code runs.
        steps: number of steps to profile.
        seconds: time limit of each of the two runs.

    Raises:
        NoLook: No trial may begin, the loop ended before these steps, or the cell runs its own profiler.
        KeyboardInterrupt: The look was interrupted; everything is restored.
        SnapshotTooLarge: The state to restore does not fit into memory.
        ValueError: `steps` or `seconds` is not positive.
        Busy: A run is already being recorded in this process.
    """
    run.check_start(steps, seconds, "look")
    if refusal := beforehand(case).refusal:
        raise NoLook(refusal)
    profiled, called = _Profiled(steps), Callers({})
    with case.aside() as aside:
        recordings: list[Recording] = []
        rounds = aside.rounds()
        with case.unseen(profiled.begin):
            try:
                rounds.side({}, "probe", WARM + steps + 1, seconds, recordings)
            finally:
                profiled.close()
        if profiled.done:
            with case.unseen(lambda recorder: _named(recorder, called, case.namespace)), uncompiled(), called:
                rounds.side({}, "probe", CALLED, seconds, recordings)
    if not profiled.done:
        raise NoLook(profiled.refused or _why(recordings[0], steps))
    return profiled.look(recordings[0], called, tuple(aside.lost))


def _named(recorder: Recorder, called: Callers, namespace: Mapping[str, Any]) -> None:
    """Names the modules of the run's models after each step and restarts the count, until CALLED steps have ended.

    So the callers of the last step are counted, with the names of all modules seen before it.
    """

    def ended(now: int) -> None:
        """Adds the names of the modules seen by now, and clears the counts, after a step."""
        if recorder.step_count >= CALLED:  # restoring the state calls operators, too
            called.over = True
            return
        seen = (module for ref in recorder.remembered if isinstance(module := ref(), torch.nn.Module))
        for model in (*named(namespace, torch.nn.Module), *seen):
            names = {id(module): name for name, module in model.named_modules() if name}
            called.names = {**names, **called.names}
        called.found.clear()

    recorder.listeners.on_steps(ended)
    recorder.plan.fold_each_step()


class _Profiled:
    """Turns the profiler on and off between two steps of a run."""

    def __init__(self, steps: int) -> None:
        """Prepares the profiler.

        Args:
            steps: number of steps to profile.
        """
        self._steps = steps
        self._profile: Any = None
        self._end_ranges: Callable[[], None] = lambda: None
        self._first = 0
        self.done = False
        """True once all steps were profiled."""
        self.refused = ""
        """Reason why no step can be profiled, in one sentence; empty if there is none."""

    def begin(self, recorder: Recorder) -> None:
        """Prepares for a run that begins: listens to its steps and marks its phases."""

        def ended(now: int) -> None:
            """Starts the profiler after WARM steps, unless another one runs, and stops it after its own steps."""
            steps = recorder.step_count
            if self._profile is None and steps >= WARM and not self.refused:
                if torch._C._autograd._profiler_enabled():
                    self.refused = OTHER_PROFILER
                    return
                self._first, self._profile = steps, profile(activities=_activities())
                self._profile.start()
                self._mark()
            elif self._profile is not None and not self.done and steps >= self._first + self._steps:
                self.done = True
                self._mark()
                self._stop()

        recorder.listeners.on_steps(ended)
        recorder.plan.fold_each_step()
        self._end_ranges = follow(recorder.log, _Ranges())

    def close(self) -> None:
        """Stops the profiler at the end of the run, which may be in the middle of the profiled steps."""
        self._end_ranges()
        if self._profile is not None and not self.done:
            self._stop()

    def _stop(self) -> None:
        with suppress(RuntimeError):  # another profiler of the cell has ended ours
            self._profile.stop()

    @staticmethod
    def _mark() -> None:
        with record_function(_EDGE):
            pass

    def look(self, recording: Recording, called: Callers, lost: tuple[str, ...]) -> Look:
        """Returns the result of the deep look.

        Args:
            recording: recording of the profiled run.
            called: callers of the operators.
            lost: clauses on what could not be restored.

        Raises:
            NoLook: Another profiler of the cell interfered.
        """
        events = self._profile.events() or []
        edges = [event for event in events if event.name == _EDGE and event.device_type.name == "CPU"]
        if len(edges) < 2:  # another profiler interfered
            raise NoLook(OTHER_PROFILER)
        rows = recording.steps.rows(self._first, self._first + self._steps)
        wall_s = float((rows.wall_s - rows.ours_s).sum())
        cores = on_tensor_cores(events)
        return Look(
            steps=self._steps,
            step_s=wall_s / self._steps,
            operators=costliest(events, called.found, self._steps, wall_s, linecache.getline),
            phases=tuple(_shares(rows, events, wall_s)),
            on_gpu=cores is not None,
            tensor_cores=cores,
            notes=left_behind((), lost),
            packed=self._packed(),
        )

    def _packed(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            return gzip.compress(path.read_bytes())


class _Ranges:
    """Writes the phases as ranges of the profiler, see `capture.ranges.Ranges`."""

    def __init__(self) -> None:
        """Starts without an open range."""
        self._open: list[Any] = []

    def begin(self, name: str) -> None:
        """Opens the range of a phase that begins."""
        named_range = record_function(f"gpu_doctor: {PHASE_LABELS.get(name, name)}")
        named_range.__enter__()
        self._open.append(named_range)

    def end(self) -> None:
        """Closes the innermost open range."""
        self._open.pop().__exit__(None, None, None)


def _activities() -> list[ProfilerActivity]:
    on_gpu = torch_memory.cuda_in_use()
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]


def _shares(rows: Steps, events: list[Any], wall_s: float) -> Iterator[PhaseShare]:
    """Yields the shares of the phases that the profiler also marks, as both measured them in the same steps."""
    for phase, begins, more_here, more_there in _MARKS:
        ours, theirs = float(getattr(rows, f"{phase}_s").sum()) / wall_s, marked(events, begins) / wall_s
        if ours or theirs:
            why = more_here if ours > theirs else more_there
            yield PhaseShare(phase, ours, theirs, why if abs(ours - theirs) > APART else "")


def _why(ended: Recording, steps: int) -> str:
    why = f": {ended.reason}" if ended.reason else ""
    return (
        f"The loop ended after {formatting.count(len(ended.steps), 'step')}, and a look at {steps} needs "
        f"{WARM + steps + 1} (outcome: {ended.outcome}{why})."
    )
