"""The processes that this one has started, and theirs: read from the kernel's own lists, else by psutil.

A loop's workers may live for less than a second, and what they use must not be taken for another program's: the list
has to be made at every reading. Linux keeps one for each thread, some 10 us each; psutil walks every process of the
machine for it, which is too dear for that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

EVERY_S: Final = 1.0
COST_SHARE: Final = 0.002
"""Walking every process of the machine may take this share of one core."""


def pids(of: int, proc: Path = Path("/proc")) -> list[int] | None:
    """Process ids of all descendants, those that have ended and were not waited for among them.

    Args:
        of: the process whose they are.
        proc: a test gives a folder of its own.

    Returns:
        None where the kernel keeps no such lists (not Linux, gVisor, CONFIG_PROC_CHILDREN left out).
    """
    found: list[int] = []
    asked = [of]
    for parent in asked:  # grows meanwhile
        try:
            threads = [one.name for one in (proc / str(parent) / "task").iterdir()]
        except OSError:
            if parent == of:
                return None
            continue  # it ended meanwhile
        for thread in threads:
            try:
                listed = (proc / str(parent) / "task" / thread / "children").read_bytes()
            except FileNotFoundError:
                if thread == str(of):  # of the main thread, which does not end before its process
                    return None
                continue
            except OSError:
                continue
            new = [int(pid) for pid in listed.split() if int(pid) not in found]
            found += new
            asked += new
    return found


def cpu_s(process: Any, proc: Path = Path("/proc")) -> float:
    """CPU seconds that a process has used so far.

    The kernel's usual figures are cut to ticks of 10 ms, of which a young worker has used a few: twelve of them looked
    15 % of two cores too cheap for half a second. The scheduler knows the nanoseconds, thread by thread.

    Args:
        process: psutil's.
        proc: a test gives a folder of its own.

    Raises:
        psutil.Error: if it is gone.
    """
    spent = process.cpu_times()
    exact_ns = 0
    try:
        for thread in (proc / str(process.pid) / "task").iterdir():
            exact_ns += int((thread / "schedstat").read_bytes().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux, not counted, or it ended meanwhile
        exact_ns = 0
    return max(float(spent.user + spent.system), 1e-9 * exact_ns)  # threads that have ended are in the first alone


class Children:
    """The descendants of this process, as psutil's processes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._known: dict[int, Any] = {}
        self._list_again_s = float("-inf")

    def __call__(self) -> list[Any]:
        """Those that live now; where each listing walks the whole machine, those of a second ago."""
        listed = pids(os.getpid())
        if listed is None:
            self._walk()
        else:
            found = {pid: self._known.get(pid) or _process(pid) for pid in listed}
            self._known = {pid: one for pid, one in found.items() if one is not None}
        return list(self._known.values())

    def _walk(self) -> None:
        now = self._clock()
        if now < self._list_again_s:
            return
        begin = time.thread_time()
        try:
            self._known = {one.pid: one for one in psutil.Process().children(recursive=True)}
        except psutil.Error:
            self._known = {}
        self._list_again_s = now + max(EVERY_S, (time.thread_time() - begin) / COST_SHARE)


def _process(pid: int) -> Any:
    """None if it is gone."""
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
