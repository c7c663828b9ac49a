"""What a container may use of its machine: CPU quota and memory limit of the process' control groups, v1 and v2."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")
_MOUNTS: Final = {
    "v2": ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
    "cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu"),
    "cpuacct": ("sys/fs/cgroup/cpuacct", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu"),
    "memory": ("sys/fs/cgroup/memory",),
}
_UNLIMITED_BYTES: Final = 1 << 60
"""v1 says 'no limit' with a number near 2**63."""


def quota_cores(root: Path = ROOT) -> float | None:
    """CPU quota in cores, the tightest of the process' group and its parents; None where there is none.

    Args:
        root: where `proc` and `sys` are; a test gives a folder of its own.
    """
    quotas = []
    for folder in _folders("v2", root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        quotas.append(_ratio(quota, period))
    for folder in _folders("cpu", root):
        quotas.append(_ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")))
    return min((quota for quota in quotas if quota is not None), default=None)


def cpu_seconds(root: Path = ROOT) -> float | None:
    """CPU seconds that all processes of the group have used; None where it cannot be read."""
    for folder in _folders("v2", root):
        used = counted(folder / "cpu.stat", "usage_usec")
        if used is not None:
            return used * 1e-6
    for folder in _folders("cpuacct", root):
        usage = _text(folder / "cpuacct.usage")
        if usage.isdigit():
            return int(usage) * 1e-9
    return None


def memory_bytes(root: Path = ROOT) -> tuple[int, int] | None:
    """Limit and use of the group that is nearest to its memory limit, in bytes; None where none has a limit.

    Use is without the page cache that the kernel drops first when memory runs short.
    """
    found = []
    for kind, limit_name, use_name, cache in (
        ("v2", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for folder in _folders(kind, root):
            limit, used = _text(folder / limit_name), _text(folder / use_name)
            if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED_BYTES:
                found.append((int(limit), max(int(used) - (counted(folder / "memory.stat", cache) or 0), 0)))
    return min(found, key=lambda one: one[0] - one[1], default=None)


def oom_kills(root: Path = ROOT) -> int | None:
    """Processes of the process' own group that the kernel killed for want of memory so far.

    None where the group has no count of its own: its parents' and the machine's (/proc/vmstat) count other programs'.
    """
    for kind, name in (("v2", "memory.events"), ("memory", "memory.oom_control")):
        for folder in _folders(kind, root)[:1]:
            killed = counted(folder / name, "oom_kill")
            if killed is not None:
                return killed
    return None


def _folders(kind: str, root: Path) -> tuple[Path, ...]:
    """The process' group of a controller and its parents; the mount itself where the path means the host's tree."""
    return _found(kind, root, _text(root / "proc/self/cgroup"))


@lru_cache(maxsize=16)
def _found(kind: str, root: Path, groups: str) -> tuple[Path, ...]:
    """As `_folders`: looking for them took a quarter of what a reading of the host cost."""
    relative, found = _own_path(kind, groups), list[Path]()
    if relative is None:
        return ()
    for mount in _MOUNTS[kind]:
        top = root / mount
        if not top.is_dir():
            continue
        folder = top / relative.strip("/")
        found += [one for one in (folder, *folder.parents) if one.is_dir() and one.is_relative_to(top)]
    return tuple(found)


def _own_path(kind: str, groups: str) -> str | None:
    """The group's path as /proc/self/cgroup gives it, None if the process is in no group of that kind."""
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and kind == "v2" and not controllers) or kind in controllers.split(","):
            return "/" if ".." in path.split("/") else path
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _ratio(quota: str, period: str) -> float | None:
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) > 0 else None


def counted(path: Path, name: str) -> int | None:
    """The number behind a name in a file of the kernel's that has one a line; None where it is not there."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None
