"""A kernel as Binder gives one: in what `binder/` makes of its base image, on one core, with little memory.

mybinder.org gives 1 core, 2 GB of memory and the 64 MB of /dev/shm that a container has by default. The kernel's
process sets these limits on itself before it becomes the kernel; where this machine does not allow that, `UNAVAILABLE`
holds the reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.support.repository import ROOT
from tests.support.session_kernel import BINDER, write_kernelspec
from tools.evaluate.limits import Limits, Unavailable, enter

LIMITS: Final = Limits(shm_mib=64, memory_mib=2048)
UNAVAILABLE: Final = "GPU_DOCTOR_WITHOUT_LIMITS"
"""The kernel's environment variable that holds the reason why it has no limits."""
_ENTER: Final = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support import binder; binder.become(sys.argv[1:])"
)


def manager(home: Path) -> KernelManager:
    """Returns the manager of a kernel that is not started yet; its specification lies below `home`."""
    name = write_kernelspec(home / "data", BINDER, through=(sys.executable, "-c", _ENTER))
    specs = KernelSpecManager(kernel_dirs=[str(home / "data" / "kernels")], ensure_native_kernel=False)
    return KernelManager(kernel_name=name, kernel_spec_manager=specs)


def become(command: Sequence[str]) -> None:
    """Sets the limits on this process and becomes another program."""
    try:
        enter(LIMITS)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    except (Unavailable, AttributeError) as reason:
        os.environ[UNAVAILABLE] = str(reason)
    os.execv(command[0], list(command))
