"""Builds `.venv-colab`: a second environment whose kernel is as old as the one Google Colab ships.

It holds only the old packages of requirements.txt. Everything else, torch above all, is found in the main environment,
whose site-packages a `.pth` file puts *last* on the path: an old package hides the new one of the same name.
`python -m tests.old_kernel.environment` builds it once; a stamp tells when it must be built again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = REPOSITORY / ".venv-colab"
KERNEL_NAME: Final = "colab"
_REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_STAMP: Final = FOLDER / "stamp.txt"


def python_of(folder: Path = FOLDER) -> Path:
    """The Python of the old environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def build() -> Path:
    """Builds the old environment unless it is there and current.

    Returns:
        Its Python.

    Raises:
        RuntimeError: if pip or venv fail; the message holds what they said.
    """
    wanted = _fingerprint()
    if _STAMP.is_file() and _STAMP.read_text() == wanted and python_of().exists():
        return python_of()
    shutil.rmtree(FOLDER, ignore_errors=True)
    _call(sys.executable, "-m", "venv", str(FOLDER))
    _call(str(python_of()), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(_REQUIREMENTS))
    _site_packages().joinpath("zz_main_environment.pth").write_text(f"{sysconfig.get_path('purelib')}\n{REPOSITORY}\n")
    _STAMP.write_text(wanted)
    return python_of()


def write_kernelspec(data_folder: Path) -> str:
    """Registers the old kernel below a Jupyter data folder and returns its name."""
    folder = data_folder / "kernels" / KERNEL_NAME
    folder.mkdir(parents=True, exist_ok=True)
    argv = [str(python_of()), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Colab", "language": "python"}))
    return KERNEL_NAME


def _site_packages() -> Path:
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(_call(str(python_of()), "-c", script).strip())


def _fingerprint() -> str:
    """Changes when the list, this Python, or the main environment's place changes."""
    parts = (_REQUIREMENTS.read_text(), Path(__file__).read_text(), sys.version, sys.prefix, str(REPOSITORY))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    build()
