"""Trials on a Ray cluster: every round is a task with its CPUs and GPUs, and what comes back is recordings.

A task runs a baseline and a candidate next to each other on one machine, from the same state: the cell, the names it
reaches, the random numbers and the switches of the kernel travel with it by cloudpickle, to the user's own cluster and
nowhere else. Nothing is pickled into a file, and what comes back are the bytes of recordings. The machines of the
cluster need the same packages as the kernel, jupyter-gpu-doctor among them. GPU: not yet run on one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

import torch

from gpu_doctor import formatting
from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials import race
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors.parcel import Unpackable, of_bytes, pack
from gpu_doctor.trials.executors.remote import Returned
from gpu_doctor.trials.executors.resources import Request, cores
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.rounds import BLOCK_SHARE, MOST_PAIRS, needs_more, went_well
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.side_budget import SETUP_S, before_s
from gpu_doctor.trials.snapshot.process import process_undos

POLL_S: Final = 0.2
"""Stop is looked for so often."""
FIRST_ROUNDS: Final = 6
"""So many rounds of a candidate are held against the trial's seconds by what their runs took alone."""
ROUNDING: Final = 1e-9
"""Parts of a cluster are added up in floating point: three thirds of it are all of it."""
CANCEL_S: Final = 5.0
"""So long a task that is cancelled may take to put its workers away before its process is ended."""
MISSING: Final = "Trials on a cluster need Ray: pip install 'jupyter-gpu-doctor[ray]'."
PATIENCE_S: Final = 300.0
"""So long a round may take beyond its own budget: waiting for a free machine, starting a process, importing torch."""


@dataclass
class RoundsOut:
    """The rounds that are out on the cluster."""

    ray: Any
    places: Mapping[int, tuple[Any, float]]
    """id of a candidate's entry -> the task that runs its rounds, and the part of the cluster that one takes."""
    luggage: Any
    against: Settings
    steps: int
    seconds: float
    limit_s: float
    pairs: int = MOST_PAIRS
    """Rounds of a candidate, at most."""
    key: str = field(default_factory=lambda: uuid4().hex)
    out: dict[Any, tuple[race.Entry, float]] = field(default_factory=dict)
    """Task -> its candidate, and when it was sent (monotonic seconds)."""

    def run(self, case: Runner, entries: Sequence[race.Entry]) -> None:
        """Sends rounds until every candidate is decided, Stop comes, or it is interrupted; leaves no task behind."""
        try:
            while not case.stopped:
                waiting = [
                    one for one in entries if one.going and not any(one is entry for entry, _ in self.out.values())
                ]
                waiting.sort(key=lambda one: len(one.candidates))  # everyone's first pair, then the second
                for entry in waiting:
                    if not self._has_room_for(entry):  # a smaller one behind it waits too: else this may never go
                        break
                    self._send(entry)
                if not self.out:
                    return
                done = sum(not entry.going for entry in entries)
                case.say(f"{done} of {len(entries)} finished, {len(self.out)} running on the cluster")
                ready, _ = self.ray.wait(list(self.out), num_returns=1, timeout=POLL_S)
                for one in ready:
                    self._back(one)
                self._overdue()
                if ready:
                    race.drop_the_worse(entries)
                    self._cancel([one for one, (entry, _) in self.out.items() if not entry.going])
        finally:
            for entry in entries:
                entry.stopped = entry.going
            self._cancel(list(self.out))

    def _has_room_for(self, entry: race.Entry) -> bool:
        """Whether the cluster has a place for one more round, by what those that are out ask for."""
        taken = sum(self.places[id(one)][1] for one, _ in self.out.values())
        return taken + self.places[id(entry)][1] <= 1.0 + ROUNDING

    def _send(self, entry: race.Entry) -> None:
        made = len(entry.candidates)
        given = (self.luggage, self.key, dict(self.against), entry.settings, self.steps, self.seconds, made)
        task, _ = self.places[id(entry)]
        self.out[task.remote(*given)] = (entry, time.monotonic())

    def _back(self, one: Any) -> None:
        """A round has come back, or has failed."""
        entry, sent = self.out.pop(one)
        entry.seconds += time.monotonic() - sent
        try:
            back = Returned(**self.ray.get(one))
            bases, candidates = ([of_bytes(file) for file in side] for side in (back.bases, back.candidates))
        except Exception as error:
            memory = isinstance(error, self.ray.exceptions.OutOfMemoryError)
            entry.failed_as = "out-of-memory" if memory else "failed"
            entry.failure, entry.going = f"the trial's task was lost on the cluster: {_cause(error)}", False
            return
        entry.bases += bases
        entry.candidates += candidates
        entry.refusal, entry.failure = back.refusal, back.failure
        whole = len(bases) == len(candidates) == 1
        good = whole and all(map(went_well, (*bases, *candidates)))
        more = good and len(entry.candidates) < self.pairs and needs_more(entry.bases, entry.candidates)
        measured_s = sum(one.duration_s - before_s(one) for one in (*entry.bases, *entry.candidates))
        # The first rounds may have waited for a place on the cluster; after some, what goes there and back counts too.
        spent_s = measured_s if len(entry.candidates) < FIRST_ROUNDS else entry.seconds
        entry.going = more and spent_s < self.seconds

    def _overdue(self) -> None:
        late = [one for one, (_, sent) in self.out.items() if time.monotonic() - sent > self.limit_s]
        for one in late:
            entry, _ = self.out[one]
            entry.failure = f"the cluster gave no answer within {formatting.seconds(self.limit_s)}"
            entry.going = False
        self._cancel(late)

    def _cancel(self, tasks: list[Any]) -> None:
        """Ends tasks: as an interrupt would, and by force where that does not help."""
        for one in tasks:
            self.ray.cancel(one, force=False)
        if tasks:
            _, stuck = self.ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_S)
            for one in stuck:
                self.ray.cancel(one, force=True)
        for one in tasks:
            self.out.pop(one, None)


def _cause(error: BaseException) -> str:
    """What ended a task, without Ray's own traceback."""
    cause = getattr(error, "cause", None)
    shown = cause if isinstance(cause, BaseException) else error
    return f"{type(shown).__name__}: {formatting.first_line(shown)}"


class RayExecutor:
    """Runs trials on a Ray cluster, several at once.

    Ray is used as it was initialised; where it was not, it is on the first trial (by `address`; None = as Ray itself
    decides: RAY_ADDRESS, or a cluster on this machine) and `close()`, or the end of a `with`, shuts that down again.

    Example:
        >>> import gpu_doctor
        >>> cell = '''
        ... import torch
        ... model = torch.nn.Linear(8, 1)
        ... optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ... for inputs in torch.utils.data.DataLoader(torch.rand(640, 8), batch_size=16):
        ...     optimizer.zero_grad()
        ...     model(inputs).mean().backward()
        ...     optimizer.step()
        ... '''
        >>> case = gpu_doctor.case(cell)
        >>> executor = gpu_doctor.RayExecutor(num_cpus=1, patience_s=120)
        >>> sweep = case.sweep({"batch_size": [16, 32]}, steps=8, executor=executor)
        >>> [effect.outcome for effect in sweep.effects]
        ['budget-reached', 'budget-reached']
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
            raise ValueError("num_cpus and num_gpus must be numbers of at least 0.")
        if (width is not None and width < 1) or not patience_s > 0:
            raise ValueError("width (trials at once) must be at least 1, and patience_s above 0.")
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
        if self._width is not None:
            return self._width
        try:
            self._connect()
            machines = self._machines()
            return max(self._request(({},), None, machines).room(machines), 1)
        except Exception:  # `trials` says what is wrong with the cluster
            return 1

    def trials(
        self,
        case: Runner,
        candidates: Sequence[Settings],
        *,
        steps: int,
        seconds: float,
        against: Settings,
        pairs: int = MOST_PAIRS,
    ) -> list[Effect]:
        """Tries each candidate on the cluster; see `Executor.trials`.

        What cannot travel, and a request that no machine of the cluster can meet, are refusals; a machine or task that
        goes away, or does not answer in time, is a failure with the reason.
        """
        against = race.begun(against, steps, seconds, pairs)
        found = case.found
        elsewhere = found is not None and not found.on_gpu and self._gpus(found) > 0
        refused = beforehand(case).refusal
        entries = [race.entered(case, one, Setup() if elsewhere else found, refused) for one in candidates]
        going = [entry for entry in entries if entry.going]
        undos = process_undos()  # what is packed may draw random numbers
        try:
            if going:
                self._run(case, going, against, steps, seconds, pairs)
        except KeyboardInterrupt:
            with uninterrupted():  # what came back until then is not lost
                for entry in entries:
                    race.concluded(case, entry, against)
            raise
        finally:
            case.say("")
            for _, undo in undos:
                undo()
        return [race.concluded(case, entry, against) for entry in entries]

    def _run(
        self,
        case: Runner,
        entries: list[race.Entry],
        against: Settings,
        steps: int,
        seconds: float,
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
            said = f"The cluster could not be used ({type(error).__name__}: {formatting.first_line(error)})."
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
        limit_s = 4 * (BLOCK_SHARE * seconds + SETUP_S) + self._patience_s  # two sides, one to warm up, one for losses
        RoundsOut(self._ray, places, luggage, against, steps, seconds, limit_s, pairs).run(case, entries)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        undos = process_undos()  # a start may draw random numbers; Ray sets up its own logger
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
        return Request(cores(found, sides, 1 if gpus else torch.get_num_threads()), gpus, more).within(machines)


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
