"""Finds other processes on this process' GPUs: their number, their memory, and how busy they keep the GPU.

The vendor module is an argument, so that a test can pass a stub. GPU: not yet run on one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from gpu_doctor.machine.nvml.visible import Gpu, ask
from gpu_doctor.machine.probe import Form, Reading, readings

METRICS: Final[Mapping[str, Form]] = {
    "other_processes": ("count", "other processes on the GPU", "detail"),
    "other_processes_bytes": ("bytes", "held by other processes", "detail"),
    "other_processes_util_pct": ("%", "GPU busy for others", "detail"),
}
_MOST_PCT: Final = 100.0
"""Largest valid sample, in per cent: drivers report larger numbers if they measured nothing."""


def sees_every_process(second: Path = Path("/proc/2/comm")) -> bool:
    """Returns True outside of containers, where NVML lists all processes; inside, its list is mostly empty.

    Args:
        second: File with the name of process 2, which is Linux' own `kthreadd` outside; a test passes its own.
    """
    try:
        return second.read_text().strip() == "kthreadd"
    except OSError:  # in a container, or not Linux
        return False


def others(vendor: Any, gpus: Sequence[Gpu], in_use: bool) -> dict[int, tuple[int, int | None]]:
    """Counts the processes on each GPU that are not this one or its descendants.

    Args:
        vendor: The module pynvml, initialised.
        gpus: The GPUs.
        in_use: True if this process uses CUDA, so that it must be in the list itself.

    Returns:
        Number of processes and their memory in bytes (None if the driver does not report it), by the GPU's index. GPUs
        for which that is not known are left out. A list without this process, although it uses CUDA, has process ids of
        another namespace (a container's host), so none of them can be distinguished from ours. An empty list means that
        there are none only if every process of the machine is visible.
    """
    listed = {gpu.index: ask(vendor, "nvmlDeviceGetComputeRunningProcesses", gpu.handle) for gpu in gpus}
    ids = {process.pid for every in listed.values() for process in every or ()}
    if os.getpid() not in ids and (in_use or (not ids and not sees_every_process())):
        return {}
    found = {}
    for index, every in listed.items():
        if every is None:
            continue
        foreign = [process for process in every if not _is_ours(process.pid)]
        sizes = [process.usedGpuMemory for process in foreign]
        found[index] = (len(foreign), None if None in sizes else sum(sizes))
    return found


def others_util_pct(
    vendor: Any, gpus: Sequence[Gpu], in_use: bool, newest_us: MutableMapping[int, int]
) -> dict[int, float]:
    """Measures how busy other processes keep each GPU, in per cent of the time, by the GPU's index.

    NVML returns a sample for each process that computed since a time stamp: how busy the process kept the card since
    then. The samples are added, to at most 100. A GPU is left out if the driver does not report samples (MIG, no
    permission), or if this process computes but is not among them: the process ids are then of another namespace.

    Args:
        vendor: The module pynvml, initialised.
        gpus: The GPUs.
        in_use: True if this process uses CUDA.
        newest_us: Newest time stamp seen on each GPU, in us, by its index; updated for the next call.
    """
    found: dict[int, float] = {}
    for gpu in gpus:
        since = newest_us.get(gpu.index, 0)
        samples = None if gpu.mig else ask(vendor, "nvmlDeviceGetProcessUtilization", gpu.handle, since)
        if not samples:
            continue
        newest_us[gpu.index] = max(since, *(sample.timeStamp for sample in samples))
        if in_use and all(sample.pid != os.getpid() for sample in samples):
            continue
        by_process: defaultdict[int, list[float]] = defaultdict(list)
        for sample in samples:
            if sample.pid and sample.smUtil <= _MOST_PCT and not _is_ours(sample.pid):
                by_process[sample.pid].append(float(sample.smUtil))
        found[gpu.index] = min(sum(sum(each) / len(each) for each in by_process.values()), _MOST_PCT)
    return found


def neighbours(vendor: Any, gpus: Sequence[Gpu], in_use: bool, newest_us: MutableMapping[int, int]) -> list[Reading]:
    """Returns readings of other processes on each GPU: their number, their memory and their use of the GPU.

    The arguments are those of `others_util_pct`.
    """
    known, busy = others(vendor, gpus, in_use), others_util_pct(vendor, gpus, in_use, newest_us)
    found: list[Reading] = []
    for gpu in gpus:
        count, size = known.get(gpu.index, (None, None))
        values = {"other_processes": count, "other_processes_bytes": size}
        found += readings(METRICS, {**values, "other_processes_util_pct": busy.get(gpu.index)}, gpu.index)
    return found


def _is_ours(pid: int) -> bool:
    """Returns True for this process and its descendants."""
    own = os.getpid()
    if pid == own:
        return True
    try:
        return any(parent.pid == own for parent in psutil.Process(pid).parents())
    except (psutil.Error, ValueError):
        return False
