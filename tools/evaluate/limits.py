"""Limits of the machine, set up around one evaluation, for troubles that no code alone has.

A small /dev/shm is a mount of the evaluating process alone (a mount namespace), little memory a control group of its
own. Both need rights that some containers do not give. Where they are missing the program is not evaluated, and the
table says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
import types
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
MS_REC_PRIVATE: Final = 0x4000 | 0x40000
"""unshare(2), mount(2)."""
GROUPS: Final = Path("/sys/fs/cgroup")


class Unavailable(Exception):
    """The limits cannot be set on this machine; the text says why."""


@dataclass(frozen=True)
class Limits:
    """Limits of the machine; None = as this machine is."""

    shm_mib: int | None = None
    """The size of /dev/shm, in MiB."""
    memory_mib: int | None = None
    """The memory that the process and its workers may take together on top of what it has already, in MiB."""
    notebook: bool = False
    """True if the cells run in `__main__`, as in a notebook: workers look there for what is pickled from there."""


def enter(limits: Limits) -> None:
    """Sets the limits on this process and its workers, for good.

    Raises:
        Unavailable: if this machine does not allow it.
    """
    try:
        if limits.shm_mib is not None:
            _limit_shm(limits.shm_mib << 20)
        if limits.memory_mib is not None:
            _limit_memory(limits.memory_mib << 20)
    except (OSError, AttributeError, KeyError) as error:  # no such call, file or controller, or no right to it
        raise Unavailable(f"a mount or control group of its own is not allowed here: {error}") from None


def namespace(limits: Limits | None) -> dict[str, Any]:
    """Returns the namespace that cells run in: a new one, or that of `__main__` under the limits of a notebook."""
    if limits is None or not limits.notebook:
        return {"__name__": "__main__"}
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    return main.__dict__


def leave(pid: int) -> None:
    """Removes the control groups of an ended process."""
    for group in (GROUPS / "memory", GROUPS):
        for remaining in group.glob(f"**/{_name(pid)}"):
            with suppress(OSError):
                remaining.rmdir()


def _limit_shm(size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS):
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
            raise Unavailable(f"a mount of its own is not allowed here: {os.strerror(ctypes.get_errno())}")
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path("/proc/self", name).write_text(text)
    if libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) or libc.mount(
        b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={size}".encode()
    ):
        raise Unavailable(f"/dev/shm cannot be mounted here: {os.strerror(ctypes.get_errno())}")


def _limit_memory(size: int) -> None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {kind: path for kind, _, path in (line.partition(":")[2].partition(":") for line in lines)}
    old = "memory" in own
    root = GROUPS / "memory" if old else GROUPS
    parent = root / own["memory" if old else ""].lstrip("/")
    if not parent.is_dir():
        parent = root  # the container sees its own group as the root
    group = parent / _name(os.getpid())
    values = (
        {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
        if old
        else {"memory.max": size, "memory.swap.max": 0}
    )
    try:
        group.mkdir()
        for name, value in values.items():
            if (group / name).exists():  # without swap accounting there is no second one
                (group / name).write_text(str(value))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise Unavailable(f"a control group of its own is not allowed here: {error.strerror}") from None
    if not old and not (group / "memory.max").exists():
        raise Unavailable("the control groups of this machine do not count memory")


def _name(pid: int) -> str:
    return f"gpu_doctor_limits_{pid}"
