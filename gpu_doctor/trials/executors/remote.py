"""Runs one combination of a sweep on a machine of the cluster: Ray Tune requests pairs and gets recordings back.

Baseline and candidate run next to each other in one process, from the same state, so that a figure compares settings
and never machines.
"""

from __future__ import annotations

import base64
import os
import platform
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ray import tune

from gpu_doctor import formatting
from gpu_doctor.recording import Recording, Settings
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.executors.parcel import Different, Parcel, as_bytes, unpack
from gpu_doctor.trials.loss_reasons import unusable
from gpu_doctor.trials.rounds import BLOCK_SHARE, MOST_PAIRS, Rounds
from gpu_doctor.trials.runner import Aside, Runner
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge

METRIC: Final = "relative_samples_per_s"
"""Name of the metric: samples per second over those of the code as written, which ran next to it on the same machine. A
slow machine must not make its settings look slow."""
WARM_STEPS: Final = 5
"""Steps as written before the first pair of a process, so that no baseline includes the cost of a first run."""


class Pairs(tune.Trainable):
    """One combination of a sweep, with a pair of runs per iteration. A process may run several combinations in turn."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """Sets up the combination when Ray Tune calls it."""
        self._folder = Path.cwd()  # Tune changes the directory, which would break the cell's relative paths
        super().__init__(*given, **named)

    def setup(self, config: dict[str, Any], sent: Mapping[str, Any] | None = None) -> None:
        """Unpacks the parcel, once per process; an error becomes the result of the first iteration."""
        os.chdir(self._folder)
        assert sent is not None
        self._around = ExitStack()
        self._warm, self._case = False, Runner("pass")
        self._answer: dict[str, Any] = {}
        try:
            self._parcel = unpack(sent)
        except Different as different:
            self._answer = {"refusal": str(different)}
        except Exception as error:
            self._answer = {"failure": _not_rebuilt(error)}
        else:
            self._case = _case_of(self._parcel)
            self._begin(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        """Continues with another combination."""
        os.chdir(self._folder)
        self._around.close()
        self._answer = {}
        self._begin(config)
        return True

    def step(self) -> dict[str, Any]:
        """Runs one pair; the result is `done` if another pair is not worth its time."""
        if self._answer:
            return {**self._answer, "decided": True, "done": True}
        rounds, made = self._rounds, len(self._rounds.candidates)
        first = len(rounds.bases)
        with acting_as_main(self._parcel.namespace):
            going = self._warmed() and rounds.pair("", {}, self._settings, self._steps, self._seconds)
            done = not going or len(rounds.candidates) >= MOST_PAIRS
            if done:
                self._around.close()
        # The kernel's own state was never touched: a note says what could not be restored on this machine.
        lost = [f"On the cluster's machine: {clause}" for clause in self._aside.lost] if done else []
        return {
            "bases": [_packed(clause, ()) for clause in rounds.bases[first:]],
            "candidates": [_packed(clause, lost) for clause in rounds.candidates[made:]],
            "decided": done,
            "done": done,
            **_metric(rounds),
        }

    def cleanup(self) -> None:
        """Ends the combination that Ray Tune gave up."""
        with acting_as_main(self._case.namespace):
            self._around.close()

    def _begin(self, config: Mapping[str, Any]) -> None:
        """Stores the state from which every run of the combination begins."""
        self._settings: Settings = config["combination"]["settings"]
        self._steps, self._seconds = int(config["steps"]), float(config["seconds"])
        self._parcel.enter()
        self._around = ExitStack()
        try:
            self._aside: Aside = self._around.enter_context(self._case.aside())
        except SnapshotTooLarge as too_large:
            self._answer = {"refusal": str(too_large)}
            return
        self._rounds = self._aside.rounds()

    def _warmed(self) -> bool:
        """Runs the code as written for a few steps, once per process; returns False if it fails."""
        if self._warm:
            return True
        rounds, self._warm = self._rounds, True
        seconds = BLOCK_SHARE * self._seconds
        went_well = rounds.side({}, "baseline", min(self._steps, WARM_STEPS), seconds, rounds.bases)
        if went_well:
            if not self._case.recordings:  # a run as written determines what can be turned
                self._case.recordings.append(rounds.bases[-1])
            rounds.bases.clear()
        return went_well


def _case_of(parcel: Parcel) -> Runner:
    case = Runner(parcel.code, parcel.namespace, name=parcel.name)
    case.allowed = parcel.allowed
    run = parcel.known_run
    if run is not None:
        case.recordings.append(run)
    return case


def _metric(rounds: Rounds) -> dict[str, float]:
    """Returns the metric for ASHA; empty without a figure, 0 for settings that cannot be used."""
    if not rounds.bases or not rounds.candidates:
        return {}
    effect = compare(rounds.bases, rounds.candidates)
    if effect.speedup is None:
        return {}
    return {METRIC: 0.0 if unusable(effect) else effect.speedup}


def _packed(recording: Recording, notes: Sequence[str]) -> str:
    """Returns a recording with further notes as text, because Tune stores it as JSON."""
    noted = replace(recording, notes=(*recording.notes, *notes))
    return base64.b64encode(as_bytes(noted)).decode("ascii")


def _not_rebuilt(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"{platform.node()} has no module {error.name!r}: install it there, or send your own files along with "
            "ray.init(runtime_env={'working_dir': '.'})"
        )
    return (
        f"the variables of the cell could not be rebuilt on {platform.node()} ({type(error).__name__}: "
        f"{formatting.first_line(error)})"
    )


@contextmanager
def acting_as_main(namespace: dict[str, Any]) -> Iterator[None]:
    """Makes `__main__` the notebook for the duration, because loader workers pickle its classes by that name."""
    if namespace.get("__name__") != "__main__":
        yield
        return

    def look_up(name: str) -> Any:
        try:
            return namespace[name]
        except KeyError:
            raise AttributeError(f"module '__main__' has no attribute {name!r}") from None

    notebook, before = types.ModuleType("__main__"), sys.modules["__main__"]
    notebook.__getattr__ = look_up  # type: ignore[method-assign]
    sys.modules["__main__"] = notebook
    try:
        yield
    finally:
        sys.modules["__main__"] = before
