"""Other processes on the GPUs of this one: how many, how much memory they hold, how busy they keep it.

The vendor module is handed in, so that a stub can stand for it. GPU: not yet run on one.
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
"""What a sample says beyond this is no per cent: drivers leave such numbers where they measured nothing."""


def sees_every_process(second: Path = Path("/proc/2/comm")) -> bool:
    """True outside of any container: NVML's list of processes is then whole; inside of one it is mostly empty.

    Args:
        second: names the second process, which outside is Linux' own `kthreadd`; a test gives a file of its own.
    """
    try:
        return second.read_text().strip() == "kthreadd"
    except OSError:  # a container's, or no Linux
        return False


def others(vendor: Any, gpus: Sequence[Gpu], in_use: bool) -> dict[int, tuple[int, int | None]]:
    """GPU index -> processes that are not of our tree, and their bytes (None where the driver does not tell).

    Args:
        vendor: pynvml, initialised.
        gpus: to look at.
        in_use: this process uses CUDA, so it must appear itself.

    Returns:
        Only what can be told. A list without ourselves, although we use CUDA, has the process ids of another namespace
        (a container's host), and then nobody in it can be told from us. An empty one means nobody only where every
        process of the machine is seen.
    """
    listed = {gpu.index: ask(vendor, "nvmlDeviceGetComputeRunningProcesses", gpu.handle) for gpu in gpus}
    ids = {one.pid for every in listed.values() for one in every or ()}
    if os.getpid() not in ids and (in_use or (not ids and not sees_every_process())):
        return {}
    found = {}
    for index, every in listed.items():
        if every is None:
            continue
        foreign = [one for one in every if not _is_ours(one.pid)]
        sizes = [one.usedGpuMemory for one in foreign]
        found[index] = (len(foreign), None if None in sizes else sum(sizes))
    return found


def others_util_pct(
    vendor: Any, gpus: Sequence[Gpu], in_use: bool, newest_us: MutableMapping[int, int]
) -> dict[int, float]:
    """GPU index -> part of the time in which kernels of processes that are not of our tree ran, in per cent.

    NVML gives one sample for each process that computed since a time stamp, which says how busy that process kept the
    card since then. These are added, to at most 100. Nothing is said where the driver does not tell (MIG, no
    permission), or where we compute and are not in it ourselves: it then has the process ids of another namespace.

    Args:
        vendor: pynvml, initialised.
        gpus: to look at.
        in_use: this process uses CUDA.
        newest_us: GPU index -> the newest time stamp seen, kept here from one call to the next.
    """
    found: dict[int, float] = {}
    for gpu in gpus:
        since = newest_us.get(gpu.index, 0)
        samples = None if gpu.mig else ask(vendor, "nvmlDeviceGetProcessUtilization", gpu.handle, since)
        if not samples:
            continue
        newest_us[gpu.index] = max(since, *(one.timeStamp for one in samples))
        if in_use and all(one.pid != os.getpid() for one in samples):
            continue
        by_process: defaultdict[int, list[float]] = defaultdict(list)
        for one in samples:
            if one.pid and one.smUtil <= _MOST_PCT and not _is_ours(one.pid):
                by_process[one.pid].append(float(one.smUtil))
        found[gpu.index] = min(sum(sum(each) / len(each) for each in by_process.values()), _MOST_PCT)
    return found


def neighbours(vendor: Any, gpus: Sequence[Gpu], in_use: bool, newest_us: MutableMapping[int, int]) -> list[Reading]:
    """`others` and `others_util_pct` as readings; the arguments are theirs."""
    known, busy = others(vendor, gpus, in_use), others_util_pct(vendor, gpus, in_use, newest_us)
    found: list[Reading] = []
    for gpu in gpus:
        count, size = known.get(gpu.index, (None, None))
        values = {"other_processes": count, "other_processes_bytes": size}
        found += readings(METRICS, {**values, "other_processes_util_pct": busy.get(gpu.index)}, gpu.index)
    return found


def _is_ours(pid: int) -> bool:
    """True for this process and what it started."""
    own = os.getpid()
    if pid == own:
        return True
    try:
        return any(parent.pid == own for parent in psutil.Process(pid).parents())
    except (psutil.Error, ValueError):
        return False
