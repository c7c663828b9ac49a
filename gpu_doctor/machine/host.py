"""The host: CPU of the machine and of this process with its workers, memory, disk traffic, /dev/shm, run queue.

Shares of CPU are of the *usable* cores (affinity and container quota), so that 100 % always means: no more to be had.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import psutil

from gpu_doctor.machine import cgroup
from gpu_doctor.machine import processes as children
from gpu_doctor.machine.probe import ProbeScope, Reader, Reading
from gpu_doctor.recording import Metric

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

CPU = Metric("cpu_util_pct", "%", "CPU, all usable cores", "utilization")
CPU_MAX_CORE = Metric("cpu_max_core_pct", "%", "CPU, busiest core", "detail")
PROCESS_CPU = Metric("process_cpu_pct", "%", "CPU of this process and its workers, of the usable cores", "detail")
PROCESS_RSS = Metric("process_rss_bytes", "bytes", "process", "memory")
PROCESS_HELD = Metric(
    "process_held_bytes", "bytes", "memory of this process without pages of files, swapped ones too", "detail"
)
PROCESS_SWAPPED = Metric("process_swapped_bytes", "bytes", "memory of this process that was swapped out", "detail")
SWAP_IN = Metric("swap_in_bytes_per_s", "bytes/s", "read back from swap, whole machine", "detail")
WORKERS_RSS = Metric("workers_rss_bytes", "bytes", "workers (shared pages counted in each)", "memory")
WORKERS = Metric("child_processes", "count", "child processes", "detail")
RAM_AVAILABLE = Metric("host_memory_available_bytes", "bytes", "host memory available", "detail")
RAM_TOTAL = Metric("host_memory_total_bytes", "bytes", "host memory", "detail")
DISK_READ = Metric("disk_read_bytes_per_s", "bytes/s", "read from disk by this process and its workers", "detail")
DISK_WRITE = Metric("disk_write_bytes_per_s", "bytes/s", "written to disk by this process and its workers", "detail")
SHM_FREE = Metric("shm_free_bytes", "bytes", "/dev/shm free", "detail")
LOAD = Metric("load_average", "count", "processes running or ready, mean of a minute", "detail")
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
    """Busy shares between two readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._usable = clock, usable_cores()
        self._cores = allowed_cores()
        quota = cgroup.quota_cores()
        # Under a quota the other cores' load is our neighbours': what is used of the quota is told by the group alone.
        self._group = quota is not None and quota < affinity_cores() and cgroup.cpu_seconds() is not None
        self._before = self._now()

    def _now(self) -> tuple[float, dict[int, tuple[float, float]], float]:
        every, online = psutil.cpu_times(percpu=True), online_cores()
        # The list is of the cores that are switched on. Where it is another one (LXC), it is of this container's own.
        numbered = dict(zip(online, every, strict=True)) if len(online) == len(every) else dict(enumerate(every))
        mine = {core: numbered[core] for core in self._cores if core in numbered}
        group_s = cgroup.cpu_seconds() if self._group else None
        times = {core: busy_and_total_s(one) for core, one in (mine or numbered).items()}
        return self._clock(), times, group_s or 0.0

    def read(self) -> list[Reading]:
        before, now = self._before, self._now()
        elapsed = now[0] - before[0]
        kept = before[1].keys() & now[1].keys()  # a core may be switched on or off meanwhile
        spans = [tuple(b - a for a, b in zip(before[1][core], now[1][core], strict=True)) for core in kept]
        if elapsed <= 0 or all(total <= 0 for _, total in spans):  # the kernel's tick did not move
            return []
        self._before = now
        shares = [busy / total for busy, total in spans if total > 0]
        used = (now[2] - before[2]) / elapsed if self._group else sum(shares)
        return [(CPU, _pct(used / self._usable)), (CPU_MAX_CORE, _pct(max(shares)))]


class _Tree:
    """This process and its children: CPU, resident memory, disk traffic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._usable = clock, usable_cores()
        self._self = psutil.Process()
        self._children = children.Children(clock)
        self._cpu: tuple[float, float] | None = None
        self._disk: tuple[float, dict[int, tuple[int, int]]] | None = None
        self._swap: tuple[float, int] | None = None

    def read(self) -> list[Reading]:
        cpu_s, rss, alive = _reaped_s() + time.process_time(), 0, []
        for child in self._children():
            try:
                cpu_s += children.cpu_s(child)
                alive.append(child)
                rss += child.memory_info().rss
            except psutil.Error:  # gone, or (no memory any more) ended and not yet waited for
                continue
        found: list[Reading] = [(PROCESS_RSS, float(self._self.memory_info().rss)), (WORKERS, float(len(alive)))]
        if alive:
            found.append((WORKERS_RSS, float(rss)))
        held = held_bytes()
        if held is not None:
            found += zip((PROCESS_HELD, PROCESS_SWAPPED), map(float, held), strict=True)
        return found + self._swap_rate() + self._cpu_share(cpu_s) + self._disk_rates([self._self, *alive])

    def _swap_rate(self) -> list[Reading]:
        total = swapped_in_bytes()
        before, self._swap = self._swap, None if total is None else (self._clock(), total)
        if before is None or self._swap is None or self._swap[0] <= before[0]:
            return []
        return [(SWAP_IN, max(self._swap[1] - before[1], 0) / (self._swap[0] - before[0]))]

    def _cpu_share(self, cpu_s: float) -> list[Reading]:
        """A child that ends moves from the living to the reaped, so the sum goes on."""
        before, self._cpu = self._cpu, (self._clock(), cpu_s)
        if before is None or self._cpu[0] <= before[0]:
            return []
        return [(PROCESS_CPU, _pct((cpu_s - before[1]) / (self._cpu[0] - before[0]) / self._usable))]

    def _disk_rates(self, processes: list[Any]) -> list[Reading]:
        now: dict[int, tuple[int, int]] = {}
        for process in processes:
            try:
                counters = process.io_counters()
            except (psutil.Error, AttributeError, OSError):  # macOS has none; another user's are not readable
                continue
            now[process.pid] = (int(counters.read_bytes), int(counters.write_bytes))
        before, self._disk = self._disk, (self._clock(), now)
        if before is None or self._disk[0] <= before[0] or not now:
            return []
        elapsed = self._disk[0] - before[0]
        # A process that was not there before has read all it has read since then.
        moved = [(r - before[1].get(pid, (0, 0))[0], w - before[1].get(pid, (0, 0))[1]) for pid, (r, w) in now.items()]
        return [
            (DISK_READ, sum(max(read, 0) for read, _ in moved) / elapsed),
            (DISK_WRITE, sum(max(written, 0) for _, written in moved) / elapsed),
        ]


def _reaped_s() -> float:
    """CPU seconds of children that have ended and were waited for."""
    times = os.times()
    return times.children_user + times.children_system


def _pct(share: float) -> float:
    return 100.0 * min(max(share, 0.0), 1.0)


def _surroundings() -> list[Reading]:
    ram, shm = memory(), shm_bytes()
    found: list[Reading] = [(RAM_AVAILABLE, float(ram[0])), (RAM_TOTAL, float(ram[1]))]
    if shm is not None:
        found.append((SHM_FREE, float(shm[0])))
    if hasattr(os, "getloadavg"):
        found.append((LOAD, os.getloadavg()[0]))
    return found


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader of the host. Shares and rates are there from the second reading on."""
    machine, tree = _Machine(scope.clock), _Tree(scope.clock)

    def read() -> list[Reading]:
        return machine.read() + tree.read() + _surroundings()

    yield read


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
