"""Another project on PyPI, gpu-doctor, installs a module of the same name; of two installed, the last one is imported.

Its files `__init__.py` and `__main__.py` lie where ours do, and uninstalling it removes ours with them.
"""

from __future__ import annotations

from typing import Final

OTHER: Final = "gpu-doctor"
"""A checker of CUDA set-ups by others."""
ADVICE: Final = (
    f"The package {OTHER} is installed as well, and its files replace some of jupyter-gpu-doctor's: "
    f"run `pip uninstall -y {OTHER} jupyter-gpu-doctor`, then `pip install jupyter-gpu-doctor`."
)


def other_package() -> str:
    """What to do where the other project is installed beside this one, one sentence; empty where it is not."""
    from importlib import metadata

    try:
        metadata.distribution(OTHER)
    except metadata.PackageNotFoundError:
        return ""
    return ADVICE
