"""A kernel as Binder gives one: in what `binder/` makes of its base image, on one core, with little memory.

mybinder.org gives 1 core, 2 GB of memory and the 64 MB of /dev/shm that a container has by default. The kernel's
process goes into such a room before it becomes the kernel; where this machine does not allow that, it says why in
`NOT_HERE`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.support.clinic.room import NotHere, Room, enter
from tests.support.repository import ROOT
from tests.support.session_kernel import BINDER, write_kernelspec

ROOM: Final = Room(shm_bytes=64 << 20, memory_bytes=2 << 30)
NOT_HERE: Final = "GPU_DOCTOR_NOT_IN_A_ROOM"
"""The kernel's environment variable that holds why it is in no room."""
_ENTER: Final = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support import binder; binder.become(sys.argv[1:])"
)


def manager(home: Path) -> KernelManager:
    """Of a kernel that is not started yet; its specification lies below `home`."""
    name = write_kernelspec(home / "data", BINDER, through=(sys.executable, "-c", _ENTER))
    specs = KernelSpecManager(kernel_dirs=[str(home / "data" / "kernels")], ensure_native_kernel=False)
    return KernelManager(kernel_name=name, kernel_spec_manager=specs)


def become(command: Sequence[str]) -> None:
    """Goes into the room and becomes another program."""
    try:
        enter(ROOM)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    except (NotHere, AttributeError) as reason:
        os.environ[NOT_HERE] = str(reason)
    os.execv(command[0], list(command))
