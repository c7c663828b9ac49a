"""Lists the descendants of this process, from the kernel's own lists or else with psutil.

A loop's workers may live for less than a second, and their CPU time must not count as another program's, so the list is
made at every reading. Linux has a list of children for each thread, which takes some 10 us to read. psutil visits every
process of the machine instead, which is too slow to do at every reading.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

EVERY_S: Final = 1.0
"""Least time between two walks over all processes, in s."""
COST_SHARE: Final = 0.002
"""Largest share of one core that walks over all processes may take, 0 to 1."""


def pids(of: int, proc: Path = Path("/proc")) -> list[int] | None:
    """Returns the process ids of all descendants, including those that have ended and were not waited for.

    Args:
        of: Id of the process.
        proc: The kernel's folder of processes; a test passes its own.

    Returns:
        None if the kernel has no such lists (not Linux, gVisor, built without CONFIG_PROC_CHILDREN).
    """
    found: list[int] = []
    parents = [of]
    for parent in parents:  # grows meanwhile
        try:
            threads = [folder.name for folder in (proc / str(parent) / "task").iterdir()]
        except OSError:
            if parent == of:
                return None
            continue  # it ended meanwhile
        for thread in threads:
            try:
                listed = (proc / str(parent) / "task" / thread / "children").read_bytes()
            except FileNotFoundError:
                if thread == str(of):  # the main thread, which does not end before its process
                    return None
                continue
            except OSError:
                continue
            new = [int(pid) for pid in listed.split() if int(pid) not in found]
            found += new
            parents += new
    return found


def cpu_s(process: Any, proc: Path = Path("/proc")) -> float:
    """Returns the CPU time that a process has used so far, in s.

    The kernel's usual figures are rounded down to ticks of 10 ms, and a young worker has used only a few: with twelve
    workers, 15 % of two cores were missing for half a second. The scheduler counts nanoseconds for each thread.

    Args:
        process: The process, as psutil's object.
        proc: The kernel's folder of processes; a test passes its own.

    Raises:
        psutil.Error: If the process is gone.
    """
    spent = process.cpu_times()
    exact_ns = 0
    try:
        for thread in (proc / str(process.pid) / "task").iterdir():
            exact_ns += int((thread / "schedstat").read_bytes().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux, not counted, or it ended meanwhile
        exact_ns = 0
    return max(float(spent.user + spent.system), 1e-9 * exact_ns)  # only the first includes threads that have ended


class Children:
    """The descendants of this process, as psutil's objects."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begins without a list; `clock` returns the time in s."""
        self._clock = clock
        self._known: dict[int, Any] = {}
        self._list_again_s = float("-inf")

    def __call__(self) -> list[Any]:
        """Returns the descendants alive now, or up to a second ago if the kernel has no lists of children."""
        listed = pids(os.getpid())
        if listed is None:
            self._walk()
        else:
            found = {pid: self._known.get(pid) or _process(pid) for pid in listed}
            self._known = {pid: process for pid, process in found.items() if process is not None}
        return list(self._known.values())

    def _walk(self) -> None:
        """Lists the descendants with psutil, if the last walk is long enough ago for its cost."""
        now = self._clock()
        if now < self._list_again_s:
            return
        begin = time.thread_time()
        try:
            self._known = {child.pid: child for child in psutil.Process().children(recursive=True)}
        except psutil.Error:
            self._known = {}
        self._list_again_s = now + max(EVERY_S, (time.thread_time() - begin) / COST_SHARE)


def _process(pid: int) -> Any:
    """Returns psutil's object for a process; None if the process is gone."""
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
