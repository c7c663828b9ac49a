"""Reads the host: CPU use of the machine and of this process with its workers, memory, and /dev/shm.

CPU percentages refer to the *usable* cores (affinity and container quota), so that 100 % always means fully used.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import psutil

from gpu_doctor.machine import cgroup
from gpu_doctor.machine import processes as children
from gpu_doctor.machine.probe import Form, ProbeScope, Reader, readings

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

METRICS: Final[Mapping[str, Form]] = {
    "cpu_util_pct": ("%", "CPU, all usable cores", "utilization"),
    "process_cpu_pct": ("%", "CPU of this process and its workers, of the usable cores", "detail"),
    "process_rss_bytes": ("bytes", "process", "memory"),
    "process_held_bytes": ("bytes", "memory of this process without pages of files, swapped ones too", "detail"),
    "process_swapped_bytes": ("bytes", "memory of this process that was swapped out", "detail"),
    "swap_in_bytes_per_s": ("bytes/s", "read back from swap, whole machine", "detail"),
    "workers_rss_bytes": ("bytes", "workers (shared pages counted in each)", "memory"),
    "host_memory_available_bytes": ("bytes", "host memory available", "detail"),
    "host_memory_total_bytes": ("bytes", "host memory", "detail"),
    "shm_free_bytes": ("bytes", "/dev/shm free", "detail"),
}
CPUS: Final = Path("/sys/devices/system/cpu")


def os_cores() -> int:
    """Returns the number of logical cores of the machine, usable or not."""
    return os.cpu_count() or 1


def allowed_cores() -> list[int]:
    """Returns the logical cores that the scheduler may use for this process; empty if the system does not report it."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def online_cores(listed: Path = CPUS / "online") -> list[int]:
    """Returns the logical cores that are switched on, ascending; empty if the system does not report them.

    Args:
        listed: File in which Linux lists them, such as `0-3,8-11`; a test passes its own.
    """
    try:
        ends = [part.partition("-") for part in listed.read_text().strip().split(",")]
        return [core for first, _, last in ends for core in range(int(first), int(last or first) + 1)]
    except (OSError, ValueError):
        return []


def affinity_cores() -> int:
    """Returns the number of logical cores that the scheduler may use for this process."""
    return len(allowed_cores()) or os_cores()


@lru_cache(maxsize=1)
def cpu_name(described: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the processor's name, such as `AMD EPYC 7B13`; empty if the system does not report it.

    Args:
        described: File in which Linux describes its processors; a test passes its own.
    """
    try:
        with described.open(encoding="utf-8", errors="replace") as lines:
            found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
            return next(found, "")
    except OSError:
        return platform.processor()


def usable_cores(root: Path = cgroup.ROOT) -> float:
    """Returns the number of cores that this process can use: the smaller of affinity and container quota.

    A quota may be a fraction of a core.

    Args:
        root: Folder with `proc` and `sys`; a test passes its own.
    """
    quota = cgroup.quota_cores(root)
    return float(affinity_cores()) if quota is None else min(float(affinity_cores()), quota)


def memory(root: Path = cgroup.ROOT) -> tuple[int, int]:
    """Returns the available and the total host memory in bytes, within the container's limit."""
    now = psutil.virtual_memory()
    limited = cgroup.memory_bytes(root)
    if limited is None or limited[0] >= now.total:
        return int(now.available), int(now.total)
    return min(int(now.available), max(limited[0] - limited[1], 0)), limited[0]


def start_method() -> str:
    """Returns the method by which processes are started, without fixing it.

    A plain `get_start_method()` would make a later `set_start_method` of the user fail.
    """
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def shm_bytes() -> tuple[int, int] | None:
    """Returns the free and the total bytes of the shared memory that workers pass batches through; None if none."""
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return None
    return (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize) if found.f_blocks else None


def held_bytes(status: Path = Path("/proc/self/status")) -> tuple[int, int] | None:
    """Returns a process' memory without pages of files, and the swapped part of it, both in bytes.

    Private, shared and swapped pages count. Pages of files (memory-mapped data sets) do not: the kernel drops them
    itself when memory runs short.

    Args:
        status: File in which Linux reports the memory of a process.

    Returns:
        None if the file is missing, as on systems without /proc.
    """
    try:
        rows = (row.split() for row in status.read_text().splitlines())
    except OSError:
        return None
    sizes = {row[0]: int(row[1]) << 10 for row in rows if len(row) == 3 and row[2] == "kB"}
    if "RssAnon:" not in sizes:
        return None
    swapped = sizes.get("VmSwap:", 0)
    return sizes["RssAnon:"] + sizes.get("RssShmem:", 0) + swapped, swapped


def swapped_in_bytes(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """Returns the bytes that the machine has read back from swap since it started; None on systems without /proc."""
    pages = cgroup.number_after(vmstat, "pswpin")
    return None if pages is None else pages * _PAGE_BYTES


def busy_and_total_s(times: Any) -> tuple[float, float]:
    """Returns busy time and whole time of one core (psutil's `scputimes`), in s; waiting for I/O is not busy."""
    # Linux includes guest time in user time already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total


class _Machine:
    """Use of the usable cores between two readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._usable = clock, usable_cores()
        self._cores = allowed_cores()
        quota = cgroup.quota_cores()
        # Under a quota, cores also carry other programs' load: only the group shows how much of the quota is used.
        self._group = quota is not None and quota < affinity_cores() and cgroup.cpu_seconds() is not None
        self._before = self._spent_s()

    def _spent_s(self) -> dict[int, tuple[float, float]]:
        """Returns the busy time and the whole time of each core, in s.

        Under a quota, these are the CPU time of the group and the time of the clock instead.
        """
        if self._group:
            return {0: (cgroup.cpu_seconds() or 0.0, self._clock())}
        every, online = psutil.cpu_times(percpu=True), online_cores()
        # psutil lists the cores that are switched on, or in some containers (LXC) the container's own cores.
        numbered = dict(zip(online, every, strict=True)) if len(online) == len(every) else dict(enumerate(every))
        mine = {core: numbered[core] for core in self._cores if core in numbered}
        return {core: busy_and_total_s(times) for core, times in (mine or numbered).items()}

    def read(self) -> dict[str, float | None]:
        """Returns the CPU use since the last reading; empty if no time has passed."""
        before, now = self._before, self._spent_s()
        common = before.keys() & now.keys()  # a core may be switched on or off meanwhile
        spans = [(now[core][0] - before[core][0], now[core][1] - before[core][1]) for core in common]
        shares = [busy / total for busy, total in spans if total > 0]
        if not shares:  # the kernel's tick has not advanced
            return {}
        self._before = now
        return {"cpu_util_pct": _pct(sum(shares) / self._usable)}


class _Rate:
    """Growth of a counter in a second, from its second value on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: tuple[float, float] | None = None

    def __call__(self, total: float | None) -> float | None:
        before, self._before = self._before, None if total is None else (self._clock(), total)
        if before is None or self._before is None or self._before[0] <= before[0]:
            return None
        return max(self._before[1] - before[1], 0.0) / (self._before[0] - before[0])


class _Tree:
    """CPU time and memory of this process and its children."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._usable, self._self = usable_cores(), psutil.Process()
        self._children = children.Children(clock)
        self._cores, self._swapped_in = _Rate(clock), _Rate(clock)

    def read(self) -> dict[str, float | None]:
        """Returns the memory of the process and of its workers, and their CPU use since the last reading."""
        cpu_s, workers = _reaped_s() + time.process_time(), []
        for child in self._children():
            try:
                cpu_s += children.cpu_s(child)
                workers.append(child.memory_info().rss)
            except psutil.Error:  # gone, or (no memory any more) ended and not yet waited for
                continue
        cores = self._cores(cpu_s)  # the time of a child that ends is in `_reaped_s` from then on, so the sum goes on
        held, swapped = held_bytes() or (None, None)
        return {
            "process_rss_bytes": self._self.memory_info().rss,
            "workers_rss_bytes": sum(workers) if workers else None,
            "process_held_bytes": held,
            "process_swapped_bytes": swapped,
            "swap_in_bytes_per_s": self._swapped_in(swapped_in_bytes()),
            "process_cpu_pct": None if cores is None else _pct(cores / self._usable),
        }


def _reaped_s() -> float:
    """Returns the CPU time of children that have ended and were waited for, in s."""
    times = os.times()
    return times.children_user + times.children_system


def _pct(share: float) -> float:
    return 100.0 * min(max(share, 0.0), 1.0)


def _host_memory() -> dict[str, float | None]:
    """Returns the machine's memory and the free space in /dev/shm."""
    available, total = memory()
    shm = shm_bytes()
    return {
        "host_memory_available_bytes": available,
        "host_memory_total_bytes": total,
        "shm_free_bytes": None if shm is None else shm[0],
    }


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader of the host. Percentages and rates are available from the second reading on."""
    machine, tree = _Machine(scope.clock), _Tree(scope.clock)
    yield lambda: readings(METRICS, machine.read() | tree.read() | _host_memory())


def physical_cores(cpus: Iterable[int] | None = None, root: Path = CPUS) -> int | None:
    """Returns the number of physical cores of which this process may use at least one hardware thread.

    A virtual machine may hide its hardware: then each of its processors counts as a core.

    Args:
        cpus: Logical cores by number; None = those that the scheduler may use for this process.
        root: Folder in which Linux describes its processors; a test passes its own.

    Returns:
        None if it cannot be read (macOS, Windows, a /sys that is not mounted).
    """
    wanted = allowed_cores() if cpus is None else cpus
    try:
        found = {(root / f"cpu{core}" / "topology" / "thread_siblings_list").read_text().strip() for core in wanted}
        return len(found) or None
    except OSError:
        return None
