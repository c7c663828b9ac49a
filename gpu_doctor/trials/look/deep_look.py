"""Runs a few steps of a case under torch.profiler, and once more to see who calls what; all is put back afterwards.

The user's own loop is never profiled: the profiler costs an event for every operator, and tracing Python costs more.
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
from gpu_doctor.trials.look.looked import APART, Look, PhaseShare
from gpu_doctor.trials.look.operators import dearest, marked, on_tensor_cores
from gpu_doctor.trials.results import left_behind
from gpu_doctor.trials.runner import Runner

STEPS: Final = 5
SECONDS: Final = 60.0
WARM: Final = 3
"""Steps before the profiled ones: allocators and autotuners have settled, as far as a few steps can."""
CALLED: Final = 2
"""Steps in which callers are counted: the second has no first-time work."""
_MARKS: Final = (
    (
        "data_wait",
        "enumerate(DataLoader)",
        "the profiler marks each batch, not the start of the iterator at an epoch",
        "the profiler marks the batches of an evaluation too, which has a phase of its own here",
    ),
    (
        "backward",
        "autograd::engine::evaluate_function",
        "the profiler marks nodes of the graph, not the whole call",
        "the profiler marks nodes of the graph wherever they run, here another phase may hold them",
    ),
    (
        "optimizer",
        "Optimizer.step",
        "the profiler marks step() alone; here zero_grad() and a scaler are in it too",
        "the profiler marks the whole of step(); here what its closure computes has phases of its own",
    ),
)
"""Phase, how the profiler's own marks of it begin, why the share may be larger here, and why there."""
OTHER_PROFILER: Final = "The cell uses a profiler of its own, and torch has one at a time: leave it out for the look."
_EDGE: Final = "gpu_doctor: edge of the look"


class NotLooked(RuntimeError):
    """No step could be profiled; the message says why."""


def look(case: Runner, steps: int = STEPS, seconds: float = SECONDS) -> Look:
    """Profiles a few steps of the code as written, and puts everything back.

    Args:
        case: whose code.
        steps: that are profiled.
        seconds: of each of the two runs.

    Raises:
        NotLooked: if no trial may begin, the loop did not come to so many steps, or the cell runs a profiler itself.
        KeyboardInterrupt: if it is interrupted, after everything was put back.
        SnapshotTooLarge: if what must be put back does not fit into memory.
        ValueError: if steps or seconds are not positive.
        Busy: if a run is already being recorded in this process.
    """
    run.check_start(steps, seconds, "look")
    if refusal := beforehand(case).refusal:
        raise NotLooked(refusal)
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
        raise NotLooked(profiled.refused or _why(recordings[0], steps))
    return profiled.look(recordings[0], called, tuple(aside.lost))


def _named(recorder: Recorder, called: Callers, namespace: Mapping[str, Any]) -> None:
    """Gives the modules their names in the models of the run after the first step; the steps after it are counted."""

    def ended(now: int) -> None:
        if recorder.step_count >= CALLED:  # what puts the state back calls operators too
            called.over = True
            return
        met = (one for ref in recorder.remembered if isinstance(one := ref(), torch.nn.Module))
        for model in (*named(namespace, torch.nn.Module), *met):
            names = {id(one): name for name, one in model.named_modules() if name}
            called.names = {**names, **called.names}
        called.found.clear()

    recorder.listeners.on_steps(ended)
    recorder.plan.fold_each_step()


class _Profiled:
    """The profiler, turned on and off between two steps of a run."""

    def __init__(self, steps: int) -> None:
        """Args: steps: that are to be profiled."""
        self._steps = steps
        self._profile: Any = None
        self._end_ranges: Callable[[], None] = lambda: None
        self._first = 0
        self.done = False
        """All the steps were profiled."""
        self.refused = ""
        """Why no step is profiled, in one sentence; empty where nothing is in the way."""

    def begin(self, recorder: Recorder) -> None:
        """A run begins."""

        def ended(now: int) -> None:
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
        """The run has ended, be it in the middle of the profiled steps."""
        self._end_ranges()
        if self._profile is not None and not self.done:
            self._stop()

    def _stop(self) -> None:
        with suppress(RuntimeError):  # another profiler of the cell has ended this one
            self._profile.stop()

    @staticmethod
    def _mark() -> None:
        with record_function(_EDGE):
            pass

    def look(self, recording: Recording, called: Callers, lost: tuple[str, ...]) -> Look:
        """What was found.

        Args:
            recording: of the profiled run.
            called: who calls the operators.
            lost: what could not be put back.
        """
        events = self._profile.events() or []
        edges = [one for one in events if one.name == _EDGE and one.device_type.name == "CPU"]
        if len(edges) < 2:  # another profiler came between them
            raise NotLooked(OTHER_PROFILER)
        rows = recording.steps.rows(self._first, self._first + self._steps)
        wall_s = float((rows.wall_s - rows.ours_s).sum())
        cores = on_tensor_cores(events)
        return Look(
            steps=self._steps,
            step_s=wall_s / self._steps,
            operators=dearest(events, called.found, self._steps, wall_s, linecache.getline),
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
    """The phases as ranges of the profiler, see `capture.ranges.Ranges`."""

    def __init__(self) -> None:
        """None is open."""
        self._open: list[Any] = []

    def begin(self, name: str) -> None:
        """A phase begins."""
        one = record_function(f"gpu_doctor: {PHASE_LABELS.get(name, name)}")
        one.__enter__()
        self._open.append(one)

    def end(self) -> None:
        """The innermost open phase ends."""
        self._open.pop().__exit__(None, None, None)


def _activities() -> list[ProfilerActivity]:
    on_gpu = torch_memory.cuda_in_use()
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]


def _shares(rows: Steps, events: list[Any], wall_s: float) -> Iterator[PhaseShare]:
    """The phases that the profiler marks by itself, as both saw them in the same steps."""
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
