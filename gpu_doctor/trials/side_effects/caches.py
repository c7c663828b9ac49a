"""The folders in which libraries keep what they can make again, each known by its place."""

from __future__ import annotations

import getpass
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDERS: Final = (
    ("XDG_CACHE_HOME", ".cache"),
    ("TORCH_HOME", ".cache/torch"),
    ("HF_HOME", ".cache/huggingface"),
    ("TRITON_CACHE_DIR", ".triton"),
    ("CUDA_CACHE_PATH", ".nv"),
    ("IPYTHONDIR", ".ipython"),
)
"""The variable that moves each, and where it is without it, below the home folder."""
_INDUCTOR: Final = "TORCHINDUCTOR_CACHE_DIR", "torchinductor_"
"""torch.compile's: the variable, and, among the temporary files, what stands before the user's name."""


def caches(temporary: str, folder: Path | None) -> tuple[str, ...]:
    """Their absolute paths, with a separator behind.

    Args:
        temporary: the folder of temporary files.
        folder: in which the cell runs: what it is in is no cache to it.
    """
    found = [Path(temporary, _INDUCTOR[1] + _user())]
    with suppress(RuntimeError):  # nobody's home is known
        found += [Path.home() / below for _, below in _FOLDERS]
    found += [Path(os.environ[name]) for name, _ in (*_FOLDERS, (_INDUCTOR[0], "")) if os.environ.get(name)]
    return tuple(
        os.path.abspath(one) + os.sep  # noqa: PTH100 (an absolute path without following links)
        for one in found
        if folder is None or not folder.is_relative_to(one)
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except Exception:  # it has no name on this machine
        return ""
