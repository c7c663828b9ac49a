"""Reads the environment of the loop: versions, devices, thread settings, torch's switches and the process group."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import torch
import torch.distributed as dist

from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.machine import cgroup, cuda_available, cuda_devices, shm_bytes, start_method
from gpu_doctor.recording.setup import World

DEBUGGING: Final = ("deterministic", "anomaly_mode", "profiler", "launch_blocking")
"""Switches that count as on if any reading found them on: costly ones are often turned on for a part of the loop."""
AIDS: Final = {"anomaly_mode": "anomaly_share", "profiler": "profiler_share"}
"""Debugging aids, each with the flag for the share (0 to 1) of the checked backward passes in which it was on."""
_NAN: Final = float("nan")


def accelerated() -> bool:
    """Returns True if torch may have a device other than the CPU."""
    return cuda_available() is not False or torch.backends.mps.is_available()


def _matmul_precision() -> str:
    """Returns `highest`, `high` or `medium`; torch's getter raises if the newer switches are set, so those are read."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        newer = getattr(torch.backends.cuda.matmul, "fp32_precision", "")
        return "high" if newer == "tf32" else "highest"


def _cudnn_tf32() -> bool:
    """Returns True if cuDNN's convolutions may run in TF32 (torch's default), by the newer switch if there is one."""
    newer = getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)  # torch 2.9
    return newer == "tf32" if newer is not None else bool(torch.backends.cudnn.allow_tf32)


def _aids() -> dict[str, bool]:
    """Returns which of torch's debugging aids are on now; both are switches of the whole process, not of a thread."""
    profiling = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    return {"anomaly_mode": torch.is_anomaly_enabled(), "profiler": bool(profiling)}


def switches() -> dict[str, object]:
    """Returns torch's process-wide switches that cost or save time, as plain values."""
    flags: dict[str, object] = {
        "matmul_precision": _matmul_precision(),
        "cudnn_tf32": _cudnn_tf32(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "launch_blocking": os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "interop_threads": torch.get_num_interop_threads(),
        **_aids(),
    }
    if torch.cuda.is_initialized():  # reading it earlier would initialise CUDA
        flags["sync_debug"] = ("default", "warn", "error")[torch.cuda.get_sync_debug_mode()]
    return flags


class AidChecks:
    """Checks of the debugging aids as a backward begins: `with detect_anomaly():` is on within a step, not between two.

    One backward is checked each time the event log is evaluated: the checks are spread over the run and cost nothing.
    """

    def __init__(self, scope: TapScope) -> None:
        """Checks the next backward, and one after each evaluation of the log."""
        self._scope, self._checks, self._on = scope, 0, Counter[str]()
        self.next()
        scope.recorder.listeners.on_steps(self.next)

    def next(self, _: int = 0) -> None:
        """Has the next backward checked."""
        self._scope.differentiated.join(self.check)

    def check(self, _: Any) -> None:
        """Checks the aids as a backward begins, and updates their shares."""
        self._scope.differentiated.leave(self.check)
        self._checks += 1
        self._on.update(name for name, on in _aids().items() if on)
        self._scope.flags.update({flag: self._on[name] / self._checks for name, flag in AIDS.items()})

    def end(self) -> None:
        """Stops checking when the run is over."""
        self._scope.recorder.listeners.off_steps(self.next)


class Group:
    """Facts about the process group, and about resources shared with other processes on this machine.

    No other rank is contacted: each observed rank makes a recording of its own.
    """

    def __init__(self, scope: TapScope) -> None:
        """Reads the free shared memory, and the count of killed processes before the cell runs."""
        self._facts = scope.recorder.facts
        self._killed_before = cgroup.oom_kills()
        self._world = World(shm_free_bytes=float((shm_bytes() or (_NAN,))[0]))
        scope.add_fact("world", self.world, self.end)

    def world(self) -> World:
        """Returns the facts known so far."""
        return replace(self._world, visible_gpus=len(self._facts["devices"]))

    def read(self, _: Any = None) -> None:
        """Reads the size of the process group and this process' rank, if there is a group."""
        if dist.is_available() and dist.is_initialized():
            size, local = dist.get_world_size(), os.environ.get("LOCAL_WORLD_SIZE", "")
            here = max(int(local), 1) if local.isdecimal() else size
            self._world = replace(self._world, world_size=size, rank=dist.get_rank(), local_size=here)

    def end(self) -> None:
        """Reads the group once more, and counts the processes that the kernel killed since the run began."""
        self.read()
        killed = cgroup.oom_kills()
        if killed is not None and self._killed_before is not None:
            self._world = replace(self._world, oom_kills=float(max(killed - self._killed_before, 0)))


def tap(scope: TapScope) -> None:
    """Records the environment at once; switches and devices again before an optimizer's first step and at the end.

    Cells set the switches before their loop, and may choose the devices until they use CUDA.
    """
    facts, flags = scope.recorder.facts, scope.flags
    flags.update(switches())
    facts.update(
        torch_version=torch.__version__,
        cuda_version=torch.version.cuda or "",
        devices=cuda_devices(),
        torch_threads=torch.get_num_threads(),
        start_method=start_method(),
        flags=lambda: dict(flags),
    )
    checks, group = AidChecks(scope), Group(scope)

    def read(_: Any = None) -> None:
        now, facts["torch_threads"] = switches(), torch.get_num_threads()
        if torch.cuda.is_initialized():
            facts["devices"] = cuda_devices()
        flags.update({name: flags.get(name) or value if name in DEBUGGING else value for name, value in now.items()})

    def end() -> None:
        now, facts["devices"] = switches(), cuda_devices()
        flags.update({name: True for name in DEBUGGING if now[name]})

    scope.optimized.append(read)
    scope.optimized.append(group.read)
    scope.at_end(end)
    scope.at_end(checks.end)
