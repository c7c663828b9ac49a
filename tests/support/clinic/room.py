"""Rooms: a machine that is short of something, set up around one examination, for troubles that no code alone has.

A small /dev/shm is a mount of the examining process alone (a mount namespace), little memory a control group of its
own; both need rights that some containers do not give. Where they are missing the patient is not examined, and that is
said.
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


class NotHere(Exception):
    """The room cannot be set up on this machine; the text says why."""


@dataclass(frozen=True)
class Room:
    """What the machine is short of; None = as this machine is."""

    shm_bytes: int | None = None
    """The size of /dev/shm."""
    memory_bytes: int | None = None
    """What the process and its workers may use together, besides what it had when it came in."""
    notebook: bool = False
    """The cell's names are those of `__main__`, as in a notebook: what is pickled from there is looked for there."""


def enter(room: Room) -> None:
    """Makes this process (and its workers) live in the room, for good.

    Raises:
        NotHere: if this machine does not allow it.
    """
    try:
        if room.shm_bytes is not None:
            _small_shm(room.shm_bytes)
        if room.memory_bytes is not None:
            _little_memory(room.memory_bytes)
    except (OSError, AttributeError, KeyError) as error:  # no such call, file or controller, or no right to it
        raise NotHere(f"a mount or control group of its own is not allowed here: {error}") from None


def namespace(room: Room | None) -> dict[str, Any]:
    """What a cell runs in: in a notebook's room, the names of `__main__` itself."""
    if room is None or not room.notebook:
        return {"__name__": "__main__"}
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    return main.__dict__


def leave(pid: int) -> None:
    """Clears away what the room of an ended process left in the system."""
    for group in (GROUPS / "memory", GROUPS):
        for left in group.glob(f"**/{_name(pid)}"):
            with suppress(OSError):
                left.rmdir()


def _small_shm(size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS):
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
            raise NotHere(f"a mount of its own is not allowed here: {os.strerror(ctypes.get_errno())}")
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path("/proc/self", name).write_text(text)
    if libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) or libc.mount(
        b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={size}".encode()
    ):
        raise NotHere(f"/dev/shm cannot be mounted here: {os.strerror(ctypes.get_errno())}")


def _little_memory(size: int) -> None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {kind: path for kind, _, path in (line.partition(":")[2].partition(":") for line in lines)}
    old = "memory" in own
    root = GROUPS / "memory" if old else GROUPS
    parent = root / own["memory" if old else ""].lstrip("/")
    if not parent.is_dir():
        parent = root  # the container sees its own group as the root
    group = parent / _name(os.getpid())
    limits = (
        {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
        if old
        else {"memory.max": size, "memory.swap.max": 0}
    )
    try:
        group.mkdir()
        for name, value in limits.items():
            if (group / name).exists():  # without swap accounting there is no second one
                (group / name).write_text(str(value))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise NotHere(f"a control group of its own is not allowed here: {error.strerror}") from None
    if not old and not (group / "memory.max").exists():
        raise NotHere("the control groups of this machine do not count memory")


def _name(pid: int) -> str:
    return f"gpu_doctor_room_{pid}"
