"""How many cores stand behind the logical ones: the hardware threads of one core share its units."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CPUS: Final = Path("/sys/devices/system/cpu")


def physical_cores(cpus: Iterable[int] | None = None, root: Path = CPUS) -> int | None:
    """Cores of which this process may use at least one hardware thread.

    A virtual machine may hide what it runs on: then each of its processors answers as a core of its own.

    Args:
        cpus: logical cores by number; None = those that the scheduler may put this process on.
        root: where Linux describes its processors; a test gives a folder of its own.

    Returns:
        None where that cannot be read (macOS, Windows, a /sys that is not mounted).
    """
    if cpus is None:
        if not hasattr(os, "sched_getaffinity"):
            return None
        cpus = os.sched_getaffinity(0)
    try:
        return len({(root / f"cpu{one}" / "topology" / "thread_siblings_list").read_text().strip() for one in cpus})
    except OSError:
        return None
