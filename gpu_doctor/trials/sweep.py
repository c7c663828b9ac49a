"""Runs a sweep: every combination of a grid of settings against the code as written, on Ray Tune.

The fastest combination is measured again, because the best of many figures owes something to luck.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpu_doctor import formatting
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials import race
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import RayExecutor
from gpu_doctor.trials.executors.parcel import Unpackable, pack
from gpu_doctor.trials.executors.ray import Unreachable
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.results import RUNNING, WAITING, Sweep
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.searches import combinations
from gpu_doctor.trials.snapshot.process import process_undos


def sweep(
    case: Runner,
    grid: Mapping[str, Sequence[SettingValue]],
    *,
    steps: int,
    seconds: float,
    executor: RayExecutor | None,
    max_trials: int,
) -> Sweep:
    """Tries every combination of a grid against the code as written.

    Args:
        case: case whose code runs; its namespace is only read.
        grid: knob -> values to try, such as `{"num_workers": [0, 2, 4], "batch_size": [32, 64]}`.
        steps: steps of one side of a pair.
        seconds: time limit of each combination's trial.
        executor: Ray cluster to use; None to start Ray on this machine for the time of the sweep.
        max_trials: largest number of combinations; a larger grid is refused.

    Returns:
        The effects, and the best settings among them, measured twice; the sweep is also the newest of `case.sweeps`.
        Variables that cannot be sent, an unusable cluster and a lost machine are the reasons of the effects concerned.

    Raises:
        ValueError: The grid is wrong, in one sentence, or `steps` or `seconds` is not positive.
        TypeError: The grid is not a mapping of knobs to lists.
        ImportError: Ray Tune is not installed.
        KeyboardInterrupt: The sweep was interrupted; the cluster is disconnected. The combinations tried so far are the
            newest of `case.sweeps`.
        Busy: A run is already being recorded in this process.
    """
    candidates = combinations(grid, max_trials)
    race.begun(None, steps, seconds)
    going = _Going(case, executor or RayExecutor(), steps, seconds)
    going.enter(candidates)
    try:
        going.run()
    except KeyboardInterrupt:
        with uninterrupted():  # the results so far are not lost
            case.sweeps.append(replace(going.concluded(), stopped=True))
        raise
    finally:
        case.sweeping = None
    case.sweeps.append(going.concluded())
    return case.sweeps[-1]


@dataclass
class _Going:
    """A running sweep; `case.sweeping` has its results so far."""

    case: Runner
    executor: RayExecutor
    steps: int
    seconds: float
    entries: list[race.Entry] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    """Effects of the entries; empty until the sweep is concluded."""
    again: Effect | None = None
    sent: dict[str, Any] = field(default_factory=dict)

    def enter(self, candidates: Sequence[Mapping[str, SettingValue]]) -> None:
        """Adds the combinations and refuses those that the loop does not support.

        If only the cluster has a GPU, the baseline there decides instead.
        """
        found = self.case.found
        elsewhere = found is not None and not found.on_gpu and self.executor.gpus(found) > 0
        refused = beforehand(self.case).refusal
        known = Setup() if elsewhere else found
        self.entries = [race.entered(self.case, candidate, known, refused) for candidate in candidates]
        self.tell()

    def tell(self) -> None:
        """Publishes the progress in `case.sweeping`; callable on any thread."""
        self.case.sweeping = Sweep(tuple(_so_far(entry) for entry in self.entries))

    def run(self) -> None:
        """Tries every entry, then the fastest again."""
        if not any(entry.going for entry in self.entries):
            return
        undos = process_undos()  # packing may draw random numbers
        try:
            with self.executor.connected(lambda: self.case.stopped) as ray:
                self.sent = pack(self.case, ray.cloudpickle.CloudPickler, self.executor.num_cpus)
                self._tune(ray, self.entries, self.tell)
                fastest = self.concluded().fastest
                if fastest is not None and not self.case.stopped:
                    entry = race.entered(self.case, fastest.settings)
                    try:
                        self._tune(ray, [entry], lambda: None)
                    finally:
                        if entry.candidates:
                            self.again = race.concluded(self.case, entry, {})
        except KeyboardInterrupt:
            if not self.case.stopped:
                raise
        except (Unpackable, Unreachable) as error_of_cluster:
            self._end(str(error_of_cluster))
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]  # Tune gives a whole traceback
            self._end(f"Ray Tune could not run the sweep ({formatting.clean(lines[-1])}).")
        finally:
            for _, undo in undos:
                undo()

    def _tune(self, ray: Any, entries: Sequence[race.Entry], changed: Callable[[], None]) -> None:
        """Lets Ray Tune try the entries that were not refused, each with the resources that it requests."""
        tuning = importlib.import_module("gpu_doctor.trials.executors.tuning")  # it imports Ray
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        going, requested = [], []
        for entry in (waiting for waiting in entries if waiting.going):
            try:
                requested.append(self.executor.requested(self.case.found, entry.settings, machines))
                going.append(entry)
            except Unreachable as lacking:
                entry.refusal, entry.going = str(lacking), False
        if going and not self.case.stopped:
            budget = {"steps": self.steps, "seconds": self.seconds}
            tuning.tuned(self.case, going, self.sent, requested, changed, **budget)

    def _end(self, reason: str) -> None:
        """Gives a reason to every combination that is not decided."""
        for entry in self.entries:
            if entry.going and not entry.candidates:
                entry.refusal = reason
            entry.going = False

    def concluded(self) -> Sweep:
        """Returns the sweep's result; each entry is concluded once."""
        if not self.effects:
            self.effects = [race.concluded(self.case, entry, {}) for entry in self.entries]
        return Sweep(tuple(self.effects), stopped=self.case.stopped, again=self.again)


def _so_far(entry: race.Entry) -> Effect:
    """Returns an entry's effect so far, while the sweep runs."""
    if entry.refusal:
        return Effect(entry.settings, outcome="refused", reason=entry.refusal)
    if entry.failure:
        return Effect(entry.settings, outcome=entry.failed_as, reason=entry.failure)
    state = RUNNING if entry.running else WAITING
    measured = entry.effect
    if measured is None:
        return Effect(entry.settings, outcome=state)
    if not entry.going:
        return replace(measured, reason=measured.reason or entry.dropped)
    return replace(measured, outcome=state)
