"""The scratch folders in which trials write: made for a side, removed after it, and after a kernel that was killed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import psutil

_NAME: Final = "gpu_doctor-side-{host}-{pid}-"


def made() -> str | None:
    """A new, empty folder among the temporary files, named after this process; None where nothing can be made there."""
    try:
        return os.path.realpath(tempfile.mkdtemp(prefix=_NAME.format(host=_host(), pid=os.getpid())))
    except OSError:
        return None


def remove_scratch_folders() -> None:
    """Removes the folders of processes of this machine that have ended, as a kernel that was killed leaves its own."""
    try:
        those = list(Path(tempfile.gettempdir()).glob(_NAME.format(host=_host(), pid="*") + "*"))
    except OSError:  # a machine with nowhere to write to
        return
    for folder in those:
        named = re.match(re.escape(_NAME.format(host=_host(), pid="")[:-1]) + r"(\d+)-", folder.name)
        if named is not None and not psutil.pid_exists(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _host() -> str:
    """The machine's name: a folder of temporary files may be shared by several."""
    return re.sub(r"[^\w.]", "_", platform.node())
