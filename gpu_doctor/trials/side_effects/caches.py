"""Lists the cache folders of libraries, whose contents can be made again."""

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
"""Environment variable that moves each cache, and its default folder below the home folder."""
_INDUCTOR: Final = "TORCHINDUCTOR_CACHE_DIR", "torchinductor_"
"""torch.compile's cache: its variable, and the prefix of its temporary folder before the user's name."""


def caches(temporary: str, folder: Path | None) -> tuple[str, ...]:
    """Returns the absolute paths of the cache folders, each with a trailing separator.

    Args:
        temporary: the folder of temporary files.
        folder: working folder of the cell; a cache folder that contains it is left out.
    """
    found = [Path(temporary, _INDUCTOR[1] + _user())]
    with suppress(RuntimeError):  # no home folder is known
        found += [Path.home() / below for _, below in _FOLDERS]
    found += [Path(os.environ[name]) for name, _ in (*_FOLDERS, (_INDUCTOR[0], "")) if os.environ.get(name)]
    return tuple(
        os.path.abspath(cache) + os.sep  # noqa: PTH100 (an absolute path without following links)
        for cache in found
        if folder is None or not folder.is_relative_to(cache)
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except Exception:  # the user has no name on this machine
        return ""
