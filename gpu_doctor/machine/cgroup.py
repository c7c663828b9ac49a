"""Reads the limits and the use of a container: CPU and memory of the process' control groups, versions 1 and 2."""

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
"""Limits from here on mean none: version 1 writes a number near 2**63 for "no limit"."""


def quota_cores(root: Path = ROOT) -> float | None:
    """Returns the tightest CPU quota of the process' group and its parents, in cores; None if there is none.

    Args:
        root: Folder with `proc` and `sys`; a test passes its own.
    """
    quotas = []
    for folder in _folders("v2", root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        quotas.append(_ratio(quota, period))
    for folder in _folders("cpu", root):
        quotas.append(_ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")))
    return min((quota for quota in quotas if quota is not None), default=None)


def cpu_seconds(root: Path = ROOT) -> float | None:
    """Returns the CPU time of all processes in the group so far, in s; None if it cannot be read."""
    for folder in _folders("v2", root):
        used = number_after(folder / "cpu.stat", "usage_usec")
        if used is not None:
            return used * 1e-6
    for folder in _folders("cpuacct", root):
        usage = _text(folder / "cpuacct.usage")
        if usage.isdigit():
            return int(usage) * 1e-9
    return None


def memory_bytes(root: Path = ROOT) -> tuple[int, int] | None:
    """Returns limit and use of the group nearest to its memory limit, in bytes; None if no group has a limit.

    Page cache that the kernel drops first when memory runs short does not count as use.
    """
    found = []
    for kind, limit_name, use_name, cache in (
        ("v2", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for folder in _folders(kind, root):
            limit, used = _text(folder / limit_name), _text(folder / use_name)
            if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED_BYTES:
                found.append((int(limit), max(int(used) - (number_after(folder / "memory.stat", cache) or 0), 0)))
    return min(found, key=lambda group: group[0] - group[1], default=None)


def oom_kills(root: Path = ROOT) -> int | None:
    """Returns how many processes of the process' own group the kernel has killed for lack of memory so far.

    None if the group has no count of its own: its parents and the machine (/proc/vmstat) count other programs too.
    """
    for kind, name in (("v2", "memory.events"), ("memory", "memory.oom_control")):
        for folder in _folders(kind, root)[:1]:
            killed = number_after(folder / name, "oom_kill")
            if killed is not None:
                return killed
    return None


def _folders(kind: str, root: Path) -> tuple[Path, ...]:
    """Returns the folders of the process' group for a controller and of the group's parents."""
    return _found(kind, root, _text(root / "proc/self/cgroup"))


@lru_cache(maxsize=16)
def _found(kind: str, root: Path, groups: str) -> tuple[Path, ...]:
    """Finds the folders for `_folders`, and caches them: the search took a quarter of the cost of a host reading.

    If the group's path refers to the host's tree and does not exist here, the mount itself is found.
    """
    relative, found = _own_path(kind, groups), list[Path]()
    if relative is None:
        return ()
    for mount in _MOUNTS[kind]:
        top = root / mount
        if not top.is_dir():
            continue
        folder = top / relative.strip("/")
        found += [group for group in (folder, *folder.parents) if group.is_dir() and group.is_relative_to(top)]
    return tuple(found)


def _own_path(kind: str, groups: str) -> str | None:
    """Returns the group's path in /proc/self/cgroup; None if the process is in no group of this kind."""
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and kind == "v2" and not controllers) or kind in controllers.split(","):
            return "/" if ".." in path.split("/") else path
    return None


def _text(path: Path) -> str:
    """Returns the text of a file; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _ratio(quota: str, period: str) -> float | None:
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) > 0 else None


def number_after(path: Path, name: str) -> int | None:
    """Returns the number after a name in a file of the kernel's with one name a line; None if it is not there."""
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None
