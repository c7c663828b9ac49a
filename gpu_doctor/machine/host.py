"""The host: CPU of the machine and of this process with its workers, memory, /dev/shm.

Shares of CPU are of the *usable* cores (affinity and container quota), so that 100 % always means: no more to be had.
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
    """Logical cores of the machine, whether usable or not."""
    return os.cpu_count() or 1


def allowed_cores() -> list[int]:
    """Numbers of the logical cores that the scheduler may put this process on; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def online_cores(listed: Path = CPUS / "online") -> list[int]:
    """Numbers of the logical cores that are switched on, ascending; none where the system does not tell.

    Args:
        listed: where Linux lists them, such as `0-3,8-11`; a test gives a file of its own.
    """
    try:
        ends = [part.partition("-") for part in listed.read_text().strip().split(",")]
        return [core for first, _, last in ends for core in range(int(first), int(last or first) + 1)]
    except (OSError, ValueError):
        return []


def affinity_cores() -> int:
    """Logical cores that the scheduler may put this process on."""
    return len(allowed_cores()) or os_cores()


@lru_cache(maxsize=1)
def cpu_name(described: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, such as `AMD EPYC 7B13`; empty where the system does not tell it.

    Args:
        described: where Linux describes its processors; a test gives a file of its own.
    """
    try:
        with described.open(encoding="utf-8", errors="replace") as lines:
            found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
            return next(found, "")
    except OSError:
        return platform.processor()


def usable_cores(root: Path = cgroup.ROOT) -> float:
    """Cores that this process may really use: the smaller of affinity and container quota (which may be a fraction).

    Args:
        root: where `proc` and `sys` are; a test gives a folder of its own.
    """
    quota = cgroup.quota_cores(root)
    return float(affinity_cores()) if quota is None else min(float(affinity_cores()), quota)


def memory(root: Path = cgroup.ROOT) -> tuple[int, int]:
    """Host memory available and total in bytes, within the container's limit."""
    now = psutil.virtual_memory()
    limited = cgroup.memory_bytes(root)
    if limited is None or limited[0] >= now.total:
        return int(now.available), int(now.total)
    return min(int(now.available), max(limited[0] - limited[1], 0)), limited[0]


def start_method() -> str:
    """How processes are started here, read without fixing it.

    Asking `get_start_method()` plainly would make a later `set_start_method` of the user fail.
    """
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def shm_bytes() -> tuple[int, int] | None:
    """Free and total bytes of the shared memory that workers hand their batches over in; None where there is none."""
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return None
    return (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize) if found.f_blocks else None


def held_bytes(status: Path = Path("/proc/self/status")) -> tuple[int, int] | None:
    """Bytes that a process holds without pages of files (private, shared, swapped ones too), and swapped ones.

    Pages of files (memory-mapped datasets) are left out: the kernel drops them by itself when memory runs short. None
    where Linux' /proc is not there.
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
    """Bytes that the machine has read back from swap since it started; None where Linux' /proc is not there."""
    pages = cgroup.counted(vmstat, "pswpin")
    return None if pages is None else pages * _PAGE_BYTES


def busy_and_total_s(times: Any) -> tuple[float, float]:
    """Busy and all seconds of one core (psutil's `scputimes`); idle and waiting for I/O are not busy."""
    # Linux counts guest time in user time already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total


class _Machine:
    """How busy the usable cores are, between two readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._usable = clock, usable_cores()
        self._cores = allowed_cores()
        quota = cgroup.quota_cores()
        # Under a quota the other cores' load is our neighbours': only the group knows what is used of the quota.
        self._group = quota is not None and quota < affinity_cores() and cgroup.cpu_seconds() is not None
        self._before = self._spent_s()

    def _spent_s(self) -> dict[int, tuple[float, float]]:
        """Busy and all seconds of each core; of a group under a quota, its CPU seconds and those of the clock."""
        if self._group:
            return {0: (cgroup.cpu_seconds() or 0.0, self._clock())}
        every, online = psutil.cpu_times(percpu=True), online_cores()
        # The list is of the cores that are switched on. Where it is another one (LXC), it is of this container's own.
        numbered = dict(zip(online, every, strict=True)) if len(online) == len(every) else dict(enumerate(every))
        mine = {core: numbered[core] for core in self._cores if core in numbered}
        return {core: busy_and_total_s(one) for core, one in (mine or numbered).items()}

    def read(self) -> dict[str, float | None]:
        before, now = self._before, self._spent_s()
        kept = before.keys() & now.keys()  # a core may be switched on or off meanwhile
        spans = [(now[one][0] - before[one][0], now[one][1] - before[one][1]) for one in kept]
        shares = [busy / total for busy, total in spans if total > 0]
        if not shares:  # the kernel's tick did not move
            return {}
        self._before = now
        return {"cpu_util_pct": _pct(sum(shares) / self._usable)}


class _Rate:
    """What a counter grows by in a second, from its second value on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: tuple[float, float] | None = None

    def __call__(self, total: float | None) -> float | None:
        before, self._before = self._before, None if total is None else (self._clock(), total)
        if before is None or self._before is None or self._before[0] <= before[0]:
            return None
        return max(self._before[1] - before[1], 0.0) / (self._before[0] - before[0])


class _Tree:
    """This process and its children: CPU and memory."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._usable, self._self = usable_cores(), psutil.Process()
        self._children = children.Children(clock)
        self._cores, self._swapped_in = _Rate(clock), _Rate(clock)

    def read(self) -> dict[str, float | None]:
        cpu_s, workers = _reaped_s() + time.process_time(), []
        for child in self._children():
            try:
                cpu_s += children.cpu_s(child)
                workers.append(child.memory_info().rss)
            except psutil.Error:  # gone, or (no memory any more) ended and not yet waited for
                continue
        cores = self._cores(cpu_s)  # a child that ends moves from the living to the reaped, so the sum goes on
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
    """CPU seconds of children that have ended and were waited for."""
    times = os.times()
    return times.children_user + times.children_system


def _pct(share: float) -> float:
    return 100.0 * min(max(share, 0.0), 1.0)


def _surroundings() -> dict[str, float | None]:
    available, total = memory()
    shm = shm_bytes()
    return {
        "host_memory_available_bytes": available,
        "host_memory_total_bytes": total,
        "shm_free_bytes": None if shm is None else shm[0],
    }


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader of the host. Shares and rates are there from the second reading on."""
    machine, tree = _Machine(scope.clock), _Tree(scope.clock)
    yield lambda: readings(METRICS, machine.read() | tree.read() | _surroundings())


def physical_cores(cpus: Iterable[int] | None = None, root: Path = CPUS) -> int | None:
    """Cores of which this process may use at least one hardware thread.

    A virtual machine may hide what it runs on: then each of its processors answers as a core of its own.

    Args:
        cpus: logical cores by number; None = those that the scheduler may put this process on.
        root: where Linux describes its processors; a test gives a folder of its own.

    Returns:
        None where that cannot be read (macOS, Windows, a /sys that is not mounted).
    """
    wanted = allowed_cores() if cpus is None else cpus
    try:
        found = {(root / f"cpu{one}" / "topology" / "thread_siblings_list").read_text().strip() for one in wanted}
        return len(found) or None
    except OSError:
        return None
