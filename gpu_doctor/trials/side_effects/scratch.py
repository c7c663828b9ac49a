"""Makes and removes the scratch folders in which trials write, also those of a kernel that was killed."""

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


def make_folder() -> str | None:
    """Makes an empty temporary folder named after this process; returns its path, None if that fails."""
    try:
        return os.path.realpath(tempfile.mkdtemp(prefix=_NAME.format(host=_host(), pid=os.getpid())))
    except OSError:
        return None


def remove_scratch_folders() -> None:
    """Removes the scratch folders of this machine's ended processes: a killed kernel leaves its own."""
    try:
        those = list(Path(tempfile.gettempdir()).glob(_NAME.format(host=_host(), pid="*") + "*"))
    except OSError:  # nothing on this machine is writable
        return
    for folder in those:
        named = re.match(re.escape(_NAME.format(host=_host(), pid="")[:-1]) + r"(\d+)-", folder.name)
        if named is not None and not psutil.pid_exists(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _host() -> str:
    """Returns the machine's name: several machines may share a folder of temporary files."""
    return re.sub(r"[^\w.]", "_", platform.node())
