"""Starts Ray on this machine for the time of a sweep, or connects to a cluster by its address.

Ray assigns cores by request, not by use: a trial that requested one core and started eight workers would share its
cores with other trials, and all their measurements would suffer. So a trial requests the cores of its loop and of its
loader's workers, and its GPU. GPU: not yet run on one.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import torch

from gpu_doctor import formatting
from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials.interrupts import interrupt_main, uninterrupted
from gpu_doctor.trials.knobs.found_loaders import meant
from gpu_doctor.trials.searches import no_ray
from gpu_doctor.trials.snapshot.process import process_undos

LOCAL: Final = "local"
"""Address that makes Ray start on this machine."""
STOP_LOOK_S: Final = 0.1
"""Seconds between two checks for Stop while Ray starts."""
PRINTS: Final = "_worker_logs_enabled"
"""Name of the printing switch in `ray._private.worker`; a Ray without it prints."""
TUNE: Final = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a pair that measured nothing has no figure for ASHA
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints, also where it is told to be silent
}
"""Environment variables that keep Ray Tune from writing logs and printing during a sweep."""
REACHABLE: Final = "ENABLE_RAY_CLUSTER"
"""The switch of `ray._private.ray_constants` by which a Ray listens for other machines; its variable is read once."""
BY_CLIENT: Final = (
    "A sweep cannot run through Ray's client (ray://): start the kernel on a machine of the cluster, and give the "
    "cluster's own address, such as RayExecutor('auto')."
)


class Unreachable(Exception):
    """Raised if the cluster cannot be used; the message says why in one sentence."""


class RayExecutor:
    """The Ray cluster for a sweep, and the resources that each trial requests.

    Where Ray is initialised in this process, that is used and left as it is. Else a sweep starts Ray on this machine,
    or connects to the cluster of the address, and shuts that down, or disconnects, when it ends.

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
        >>> sweep = case.sweep({"batch_size": [16, 32]}, steps=8, executor=gpu_doctor.RayExecutor(num_cpus=1))
        >>> [effect.settings for effect in sweep.effects]
        [{'batch_size': 16}, {'batch_size': 32}]
    """

    def __init__(
        self,
        address: str = LOCAL,
        *,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Stores the requests without starting anything.

        Args:
            address: address of the cluster, as `ray.init` takes it: `auto` for the cluster of this machine, or such as
                `10.0.0.5:6379`; `local` starts Ray on this machine.
            num_cpus: cores that a trial requests, including those of its loader's workers; torch computes on no more
                threads there. None for one core per worker and, for the loop, one per torch thread here (one if the
                trial has a GPU), up to the cores of the largest machine.
            num_gpus: GPUs that a trial requests; None for 1 if the loop was seen to train on a GPU, else 0. If the loop
                trained on the CPU here and a trial requests a GPU, the baseline there decides what can be turned.
            resources: further resources that a trial requests, such as `{"a100": 1}`.

        Raises:
            ImportError: Ray Tune is not installed.
            ValueError: A request is negative, or the address is one of Ray's client.
        """
        if missing := no_ray():
            raise ImportError(missing)
        requested = [amount for amount in (num_cpus, num_gpus, *(resources or {}).values()) if amount is not None]
        if not all(isinstance(amount, (int, float)) and amount >= 0 for amount in requested):
            raise ValueError("num_cpus, num_gpus and the values of resources must be numbers of at least 0.")
        if str(address).startswith("ray://"):
            raise ValueError(BY_CLIENT)
        self.address = address
        self.num_cpus, self.num_gpus = num_cpus, num_gpus
        self.resources = dict(resources or {})

    @contextmanager
    def connected(self, stopped: Callable[[], bool]) -> Iterator[Any]:
        """Connects to Ray for a sweep and yields the module `ray`; shuts down at the end what it started.

        Args:
            stopped: returns True after a Stop, which interrupts Ray's start.

        Raises:
            Unreachable: Ray does not start, or rejects this process.
            KeyboardInterrupt: Ray's start was interrupted or stopped.
        """
        ray = importlib.import_module("ray")  # typed as Any
        ours = not ray.is_initialized()
        with _quiet_ray():
            if ours:
                with _interrupted_by(stopped):
                    self._start(ray)
            elif ray.util.client.ray.is_connected():
                raise Unreachable(BY_CLIENT)
            try:
                yield ray
            finally:
                if ours:
                    ray.shutdown()

    def _start(self, ray: Any) -> None:
        undos = process_undos()  # a start may draw random numbers; Ray sets up its own logger
        before = _processes()
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
        if self.address == LOCAL:
            how |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}  # no other machine can reach it
        try:
            with _environment(RAY_USAGE_STATS_ENABLED="0"), _listening_locally(self.address == LOCAL):
                ray.init(address=self.address, **how)
        except BaseException as error:  # Ray raises plain exceptions if it fails to start
            with uninterrupted():
                ray.shutdown()
                for process in _processes() - before:  # Ray leaves the processes of a failed start
                    with suppress(psutil.Error):
                        process.kill()
            if not isinstance(error, Exception):
                raise
            raise Unreachable(_why_unreachable(error)) from error
        finally:
            for _, undo in undos:
                undo()

    def gpus(self, found: Setup | None) -> float:
        """Returns the number of GPUs that a trial requests; `found`: the setup of an earlier run."""
        return self.num_gpus if self.num_gpus is not None else float(found is not None and found.on_gpu)

    def requested(
        self, found: Setup | None, settings: Settings, machines: Sequence[Mapping[str, float]]
    ) -> dict[str, float]:
        """Returns the resources that a trial of some settings requests, by Ray's names.

        Args:
            found: setup of the loop as a run recorded it; None before any run.
            settings: settings of the candidate side; the baseline's are as written.
            machines: resources of each machine of the cluster.

        Raises:
            Unreachable: No machine has the resources.
        """
        gpus = self.gpus(found)
        rest = {name: amount for name, amount in {"GPU": gpus, **self.resources}.items() if amount}
        if self.num_cpus is not None:
            cpus = self.num_cpus
        else:
            threads = 1 if gpus else torch.get_num_threads()
            largest = max((has.get("CPU", 0.0) for has in machines if _holds(has, rest)), default=0.0)
            cpus = float(cores(found, settings, threads))
            cpus = min(cpus, largest) if largest else cpus
        requested = {"CPU": cpus, **rest}
        if not any(_holds(has, requested) for has in machines):
            amounts = ", ".join(f"{formatting.average(amount)} {name}" for name, amount in requested.items())
            raise Unreachable(
                f"No machine of the cluster has {amounts}, which a trial requests: lower the request of RayExecutor "
                "(num_cpus=, num_gpus=, resources=), or start such a machine."
            )
        return requested


def cores(found: Setup | None, settings: Settings, threads: int) -> int:
    """Returns the cores that a trial keeps busy: those of the loop, and one for each worker of its loader.

    Args:
        found: setup of the loop as a run recorded it; None before any run.
        settings: settings of the candidate side; the baseline's are as written, and the two run in turns.
        threads: threads with which the loop computes; one if a GPU computes.
    """
    written = max((loader.num_workers for loader in meant(found)), default=0) if found is not None else 0
    sides: tuple[Settings, ...] = (settings, {})
    return max(_whole(side.get("threads"), threads) + _whole(side.get("num_workers"), written) for side in sides)


def _whole(value: Any, usual: int) -> int:
    """Returns a setting's number, or `usual` if it is none: the knob refuses such a value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else usual


def _holds(has: Mapping[str, float], requested: Mapping[str, float]) -> bool:
    return all(has.get(name, 0.0) >= amount for name, amount in requested.items())


def _why_unreachable(error: Exception) -> str:
    """Returns the sentence for an error of Ray, which lists versions that differ in a table."""
    text = str(error)
    versions = re.findall(r"(Ray|Python): ([\w.+]+)", text)
    if "Version mismatch" in text and len(versions) == 4:
        there, here = (
            " and ".join(f"{name} {number}" for name, number in side) for side in (versions[:2], versions[2:])
        )
        return f"The cluster runs {there}, and this kernel {here}: install the same versions on both."
    return f"The cluster could not be used ({type(error).__name__}: {formatting.first_line(error)})."


def _processes() -> set[psutil.Process]:
    """Returns Ray's child processes of this process."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("/ray/" in Path(word).as_posix() for word in process.cmdline()):
                found.add(process)
    return found


@contextmanager
def _interrupted_by(stopped: Callable[[], bool]) -> Iterator[None]:
    """Lets a Stop interrupt the main thread, once. Another thread cannot be interrupted."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(STOP_LOOK_S):
            if stopped():
                interrupt_main()
                return

    watching = threading.Thread(target=watch, name="gpu_doctor-stop", daemon=True)
    if threading.current_thread() is threading.main_thread():
        watching.start()
    try:
        yield
    finally:
        over.set()
        if watching.ident is not None:
            watching.join()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Sets environment variables inside the context."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _listening_locally(requested: bool) -> Iterator[None]:
    """Makes a local Ray listen on this machine alone, as it does by itself on macOS and Windows."""
    constants = importlib.import_module("ray._private.ray_constants") if requested else None
    before = getattr(constants, REACHABLE, None)
    if before:
        setattr(constants, REACHABLE, False)
    try:
        with _environment(**({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if requested else {})):
            yield
    finally:
        if before:
            setattr(constants, REACHABLE, before)


@contextmanager
def _quiet_ray() -> Iterator[None]:
    """Keeps Ray from printing inside the context: the sweep's table has the results.

    Besides its logger, Ray prints reports of its machines on its own thread, such as a process that ended, even if it
    is configured not to print the output of processes.
    """
    logger, worker = logging.getLogger("ray"), importlib.import_module("ray._private.worker")
    level, prints = logger.level, getattr(worker, PRINTS, None)
    logger.setLevel(logging.CRITICAL + 1)
    if prints:
        setattr(worker, PRINTS, False)
    try:
        with _environment(**TUNE):
            yield
    finally:
        logger.setLevel(level)
        if prints:
            setattr(worker, PRINTS, prints)
