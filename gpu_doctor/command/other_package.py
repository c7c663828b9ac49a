"""Detects gpu-doctor, another project on PyPI that installs a module of the same name.

If both are installed, Python imports the one installed last: the files `__init__.py` and `__main__.py` have the same
paths. Uninstalling the other project also removes ours.
"""

from __future__ import annotations

from typing import Final

OTHER: Final = "gpu-doctor"
"""Name of the other project, which checks CUDA set-ups."""
ADVICE: Final = (
    f"The package {OTHER} is installed as well, and its files replace some of jupyter-gpu-doctor's: "
    f"run `pip uninstall -y {OTHER} jupyter-gpu-doctor`, then `pip install jupyter-gpu-doctor`."
)


def other_package() -> str:
    """Returns one sentence of advice if the other project is installed, too, else ''."""
    from importlib import metadata

    try:
        metadata.distribution(OTHER)
    except metadata.PackageNotFoundError:
        return ""
    return ADVICE
