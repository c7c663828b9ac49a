"""Trials on a Ray cluster: every round is a task with its CPUs and GPUs, and what comes back is recordings.

A task runs a baseline and a candidate next to each other on one machine, from the same state: the cell, the names it
reaches, the random numbers and the switches of the kernel travel with it by cloudpickle, to the user's own cluster and
nowhere else. Nothing is pickled into a file, and what comes back are the bytes of recordings. The machines of the
cluster need the same packages as the kernel, jupyter-gpu-doctor among them. GPU: not yet run on one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials import race
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors.parcel import Unpackable, pack, threads_here
from gpu_doctor.trials.executors.resources import Request, cores
from gpu_doctor.trials.executors.rounds_out import RoundsOut, first_line
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.morepairs import MOST_PAIRS
from gpu_doctor.trials.rounds import BLOCK_SHARE
from gpu_doctor.trials.snapshot.process import process_undos

if TYPE_CHECKING:
    from gpu_doctor.trials.case import Case

MISSING: Final = "Trials on a cluster need Ray: pip install 'jupyter-gpu-doctor[ray]'."
PATIENCE_S: Final = 300.0
"""So long a round may take beyond its own budget: waiting for a free machine, starting a process, importing torch."""


class RayExecutor:
    """Runs trials on a Ray cluster, several at once.

    Ray is used as it was initialised; where it was not, it is on the first trial (by `address`; None = as Ray itself
    decides: RAY_ADDRESS, or a cluster on this machine) and `close()`, or the end of a `with`, shuts that down again.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        width: int | None = None,
        patience_s: float = PATIENCE_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            address: of the cluster, for `ray.init`.
            num_cpus: cores that a trial asks for, those of its loader's workers included; torch computes on no more
                threads there. None = one for each worker and, as many as torch has threads here, for the loop (one
                where the task has a GPU); at most what the largest machine has.
            num_gpus: GPUs that a trial asks for; None = 1 where the loop was seen to train on a GPU, else 0. Where it
                trained on the CPU here and a trial asks for a GPU, its baseline there decides what can be turned; a
                treatment begins with the diagnosis of the run here all the same.
            width: trials at once; None = as many as the cluster has room for now.
            patience_s: seconds that a round may take beyond its own budget before it counts as failed.
            options: further options of the task, such as `{"resources": {"a100": 1}}`.

        Raises:
            ImportError: if Ray is not installed.
            ValueError: if what is asked for is not positive.
        """
        try:
            ray = import_module("ray")  # its types are its own: taken as Any
        except ImportError as missing:
            raise ImportError(MISSING) from missing
        self._options = dict(options or {})
        # Options of the task win; what it asks for must be known, to tell how many the machines have room for.
        num_cpus, num_gpus = self._options.pop("num_cpus", num_cpus), self._options.pop("num_gpus", num_gpus)
        asked = [one for one in (num_cpus, num_gpus) if one is not None]
        if not all(isinstance(one, (int, float)) and one >= 0 for one in asked):
            raise ValueError("num_cpus and num_gpus of a trial are numbers, 0 or more.")
        if (width is not None and width < 1) or not patience_s > 0:
            raise ValueError("The number of trials at once (width) is at least 1, and patience_s is above 0.")
        self._ray: Any = ray
        self._address, self._width, self._patience_s = address, width, patience_s
        self.num_cpus: float | None = num_cpus
        self.num_gpus: float | None = num_gpus
        self._ours = False

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shuts Ray down, if it was started by this executor."""
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()
        self._ours = False

    @property
    def width(self) -> int:
        """How many trials run at once, of a loop that nothing is known of; at least 1."""
        return self._width_for(None)

    def width_for(self, case: Case) -> int:
        """How many trials of a case run at once, each with the workers that it has as written; at least 1."""
        return self._width_for(case.found)

    def _width_for(self, found: Setup | None) -> int:
        if self._width is not None:
            return self._width
        try:
            self._connect()
            machines = self._machines()
            return max(self._request(({},), found, machines).room(machines), 1)
        except Exception:  # `trials` says what is wrong with the cluster
            return 1

    def trials(
        self,
        case: Case,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
        racing: bool = False,
        pairs: int = MOST_PAIRS,
    ) -> list[Effect]:
        """Tries each candidate on the cluster; see `Executor.trials`.

        What cannot travel, and a request that no machine of the cluster can meet, are refusals; a machine or task that
        goes away, or does not answer in time, is a failure with the reason.
        """
        against = race.begun(case, against, steps, seconds, pairs)
        found = case.found
        elsewhere = found is not None and not found.on_gpu and self._gpus(found) > 0
        entries = [race.entered(case, one, Setup() if elsewhere else found) for one in candidates]
        going = [entry for entry in entries if entry.going]
        undos = process_undos(reporting=False)  # what is packed may draw random numbers
        try:
            if going:
                self._run(case, going, against, steps, seconds, racing, pairs)
        except KeyboardInterrupt:
            with uninterrupted():  # what came back until then is not lost
                for entry in entries:
                    race.concluded(case, entry, against)
            raise
        finally:
            case._say("")
            for _, undo in undos:
                undo()
        return [race.concluded(case, entry, against) for entry in entries]

    def _run(
        self,
        case: Case,
        entries: list[race.Entry],
        against: Settings,
        steps: int,
        seconds: float,
        racing: bool,
        pairs: int,
    ) -> None:
        said = ""
        try:
            self._connect()
            machines = self._machines()
            requests = [self._request((against, entry.settings), case.found, machines) for entry in entries]
            lacking = next((one for one in requests if not (self._width or one.room(machines))), None)
            if lacking is not None:
                said = f"No machine of the cluster has {lacking} for a trial: ask for less, or give width="
                said += " for a cluster that grows by itself."
            else:
                luggage = self._ray.put(pack(case, self._ray.cloudpickle.CloudPickler, self.num_cpus))
        except Unpackable as unpackable:
            said = str(unpackable)
        except Exception as error:  # Ray's own failures to start are plain ones too
            said = f"The cluster could not be used ({type(error).__name__}: {first_line(error)})."
        if said:
            for entry in entries:
                entry.refusal, entry.going = said, False
            return
        round_ = self._ray.remote(_round())
        places = {}
        for entry, request in zip(entries, requests, strict=True):
            asked = {"num_cpus": request.cpus, "num_gpus": request.gpus, "max_retries": 0, "name": "gpu_doctor"}
            part = 1.0 / (self._width or request.room(machines))
            places[id(entry)] = round_.options(**{**asked, **self._options}), part
        limit_s = 3 * BLOCK_SHARE * seconds + self._patience_s  # two sides, and one to warm up
        RoundsOut(self._ray, places, luggage, against, steps, seconds, limit_s, pairs).run(case, entries, racing)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        undos = process_undos(reporting=False)  # a start may draw random numbers; Ray sets up its own logger
        try:
            self._ray.init(address=self._address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
            self._ours = True
        finally:
            for _, undo in undos:
                undo()

    def _machines(self) -> list[Mapping[str, float]]:
        """What each of the cluster's machines has in all."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _gpus(self, found: Setup | None) -> float:
        return self.num_gpus if self.num_gpus is not None else float(found is not None and found.on_gpu)

    def _request(
        self, sides: Sequence[Settings], found: Setup | None, machines: Sequence[Mapping[str, float]]
    ) -> Request:
        """What a trial with these sides asks for."""
        gpus, more = self._gpus(found), self._options.get("resources", {})
        if self.num_cpus is not None:
            return Request(self.num_cpus, gpus, more)
        return Request(cores(found, sides, 1 if gpus else threads_here()), gpus, more).within(machines)


def _round() -> Callable[..., Any]:
    """What a task runs; made in here it travels whole, and what it needs is imported in its own hands.

    A process whose task is cancelled is not used again: its imports may have been cut short, torch's among them, and
    whatever came to it next would fail.
    """

    def gpu_doctor_round(*given: Any) -> Mapping[str, Any]:
        try:
            from gpu_doctor.trials.executors.remote import one_round

            return one_round(*given)
        except KeyboardInterrupt:
            raise SystemExit(0) from None

    return gpu_doctor_round
