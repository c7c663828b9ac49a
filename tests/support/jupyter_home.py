"""Jupyter's folders, all below one of ours, so that no test meets the machine's own kernels, settings or history."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.repository import ROOT

_FOLDERS = {
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "IPYTHONDIR": "ipython",
}
_FOREIGN = ("JUPYTER", "IPYTHON", "PYTEST", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")


def jupyter_folders(home: Path) -> dict[str, str]:
    """The environment variables that put every Jupyter and IPython folder below `home`."""
    return {name: str(home / folder) for name, folder in _FOLDERS.items()}


def jupyter_environment(home: Path) -> dict[str, str]:
    """This process' environment for a Jupyter of our own: folders below `home`, this Python first on the PATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    environment.update(jupyter_folders(home))
    environment["JUPYTER_PREFER_ENV_PATH"] = "1"
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    return environment


def environment(folder: Path) -> dict[str, str]:
    """A Jupyter of the test's own, which finds this package."""
    return {**jupyter_environment(folder / "jupyter"), "PYTHONPATH": str(ROOT)}
