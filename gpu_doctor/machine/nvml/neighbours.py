"""Other processes on the GPUs of this one: how many, how much memory they hold, how busy they keep it.

The vendor module is handed in, so that a stub can stand for it. GPU: not yet run on one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import psutil

from gpu_doctor.machine.nvml.visible import Gpu, ask
from gpu_doctor.machine.probe import Reading
from gpu_doctor.recording import Metric


def others(vendor: Any, gpus: Sequence[Gpu], in_use: bool) -> dict[int, tuple[int, int | None]]:
    """GPU index -> processes that are not of our tree, and their bytes (None where the driver does not tell).

    Args:
        vendor: pynvml, initialised.
        gpus: to look at.
        in_use: this process uses CUDA, so it must appear itself.

    Returns:
        Only what can be told: a list without ourselves, although we use CUDA, has the process ids of another namespace
        (a container's host), and then nobody in it can be told from us.
    """
    listed = {gpu.index: ask(vendor, "nvmlDeviceGetComputeRunningProcesses", gpu.handle) for gpu in gpus}
    ids = {one.pid for every in listed.values() for one in every or ()}
    if in_use and ids and os.getpid() not in ids:
        return {}
    if in_use and not ids:  # containers mostly hide the whole list
        return {}
    found = {}
    for index, every in listed.items():
        if every is None:
            continue
        foreign = [one for one in every if not _is_ours(one.pid)]
        sizes = [one.usedGpuMemory for one in foreign]
        found[index] = (len(foreign), None if None in sizes else sum(sizes))
    return found


def others_util_pct(vendor: Any, gpus: Sequence[Gpu], in_use: bool) -> dict[int, float]:
    """GPU index -> part of the latest samples in which kernels of processes that are not of our tree ran, in per cent.

    NVML keeps a few seconds of samples per process; their mean is taken, over processes summed, at most 100. Nothing
    is said where the driver does not tell (MIG, no permission), or where we compute and are not in it ourselves: it
    then has the process ids of another namespace.
    """
    found: dict[int, float] = {}
    for gpu in gpus:
        samples = ask(vendor, "nvmlDeviceGetProcessUtilization", gpu.handle, 0)
        if not samples or gpu.mig or (in_use and all(one.pid != os.getpid() for one in samples)):
            continue
        times = {one.timeStamp for one in samples}
        busy = sum(float(one.smUtil) for one in samples if one.pid and not _is_ours(one.pid))
        found[gpu.index] = min(busy / len(times), 100.0)
    return found


def neighbours(vendor: Any, gpus: Sequence[Gpu], in_use: bool) -> list[Reading]:
    """`others` and `others_util_pct` as readings."""
    readings: list[Reading] = []
    for index, (count, size) in others(vendor, gpus, in_use).items():
        metric = Metric("other_processes", "count", "other processes on the GPU", "detail", index)
        readings.append((metric, float(count)))
        if size is not None:
            metric = Metric("other_processes_bytes", "bytes", "held by other processes", "detail", index)
            readings.append((metric, float(size)))
    for index, busy in others_util_pct(vendor, gpus, in_use).items():
        readings.append((Metric("other_processes_util_pct", "%", "GPU busy for others", "detail", index), busy))
    return readings


def _is_ours(pid: int) -> bool:
    """True for this process and what it started."""
    own = os.getpid()
    if pid == own:
        return True
    try:
        return any(parent.pid == own for parent in psutil.Process(pid).parents())
    except (psutil.Error, ValueError):
        return False
