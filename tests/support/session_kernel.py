"""Kernels of the environments that nox makes with other versions: `nox -s colab`, `nox -s binder` (noxfile.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

COLAB: Final = "colab"
BINDER: Final = "binder"
VERSIONS: Final = ROOT / "tests" / "versions"


def session_python(name: str = COLAB) -> Path:
    """The Python of the session that runs these tests.

    Args:
        name: the session.

    Raises:
        pytest.skip.Exception: outside of that session.
    """
    path = os.environ.get(f"GPU_DOCTOR_{name.upper()}_PYTHON")
    if not path:
        pytest.skip(f"needs an environment of its own: nox -s {name}")
    return Path(path)


def write_kernelspec(
    data_folder: Path, name: str = COLAB, through: Sequence[str] = (), python: Path | None = None
) -> str:
    """Registers the kernel of a session below a Jupyter data folder and returns its name.

    Args:
        data_folder: the Jupyter data folder.
        name: the session.
        through: a command that becomes the kernel, whose own command follows it.
        python: another Python than the session's own.
    """
    folder = data_folder / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    argv = [*through, str(python or session_python(name)), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name.title(), "language": "python"}))
    return name


def python_in(folder: Path) -> Path:
    """The Python of the environment in a folder."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def printed(*command: str) -> str:
    """What a command prints, run in the checkout; what belongs to another Python stays out.

    Raises:
        subprocess.CalledProcessError: if the command fails.
    """
    foreign = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    plain = {name: value for name, value in os.environ.items() if name not in foreign}
    return subprocess.run(command, cwd=ROOT, env=plain, stdout=subprocess.PIPE, text=True, check=True).stdout
