"""Packages that this Python lacks, out of wheels that were carried along: no pip, no network, nothing installed.

`python -m benchmarks.gpu.wheels` (`make gpu-wheels`) fills `benchmarks/gpu/wheels/` by pip, on a machine that has a
registry. On the machine with the GPU they are unpacked into an environment of the proof's own, which sees all that its
Python sees: kernels that are started from it find them without a variable. torch and numpy are not carried: they are
large, and the machine's own are what is to be tried.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).with_name("wheels")
ROOT: Final = Path(__file__).parents[2]
ODD: Final = {"nvidia-ml-py": "pynvml", "ipython": "IPython", "pyzmq": "zmq", "rpds-py": "rpds"}
"""A package is known to be there by this module, where its name does not tell it."""
NAMES: Final = """
nvidia-ml-py psutil pytest pluggy iniconfig packaging pygments pytest-timeout pytest-rerunfailures
ipython ipython-pygments-lexers jedi parso prompt-toolkit wcwidth matplotlib-inline stack-data asttokens executing
pure-eval pexpect ptyprocess traitlets ipykernel comm debugpy nest-asyncio2 pyzmq tornado jupyter-client jupyter-core
platformdirs ipywidgets widgetsnbextension jupyterlab-widgets anywidget psygnal bokeh xyzservices nbformat nbclient
fastjsonschema jsonschema jsonschema-specifications referencing rpds-py
"""
PACKAGES: Final = tuple(NAMES.split())
"""What the product and pytest need, a kernel, its widgets and a notebook's file."""
PYTHON: Final = "3.12"
GLIBCS: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
MOST_BYTES: Final = 40 << 20


def missing() -> list[str]:
    """Lists the packages that this Python does not have."""
    return [one for one in PACKAGES if importlib.util.find_spec(ODD.get(one, one.replace("-", "_"))) is None]


def folder_for(python: str) -> Path:
    """Names the folder of wheels for a Python such as `3.12`, on a machine like this one."""
    return HERE / f"{python}-{platform.machine()}"


def unpacked(packages: Iterable[str], folder: Path, wheels: Path) -> tuple[list[str], list[str]]:
    """Unpacks the wheels of these packages into the folder; returns those that are there, and those that are not."""
    found, lacking = [], []
    for package in packages:
        fitting = sorted(wheels.glob(f"{package.replace('-', '_')}-*.whl"))
        (found if fitting else lacking).append(package)
        for path in fitting:
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(folder)
    return found, lacking


def environment(folder: Path, wheels: Path | None = None) -> tuple[Path, str]:
    """Makes the environment: this Python with all that it has, this checkout, and the wheels of what it lacks.

    Returns:
        Its Python, and a sentence on the wheels, if anything.
    """
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(folder)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    ours = folder / "lib" / f"python{version}" / "site-packages"
    known = [one for one in sys.path if Path(one).name in ("site-packages", "dist-packages")]  # of an environment too
    lines = [str(ROOT), *(f"import site; site.addsitedir({one!r})" for one in known)]
    (ours / "gpu_proof.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, lacking = unpacked(missing(), ours, wheels or folder_for(version))
    said = f"Taken from the wheels carried along: {', '.join(found)}. " if found else ""
    if lacking:
        said += f"This Python lacks {', '.join(lacking)}: `make gpu-wheels` on a machine with a registry gets them."
    return folder / "bin" / "python", said.strip()


def download(python: str, folder: Path) -> list[Path]:
    """Fills the folder by pip with wheels for a Python."""
    platforms = [f"--platform={glibc}_{platform.machine()}" for glibc in GLIBCS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms]
    command += [f"--constraint={ROOT / 'constraints.txt'}", f"--dest={folder}", *PACKAGES]
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def main(words: Sequence[str]) -> int:
    """Downloads; returns 1 if that is more than may travel."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.wheels", description="Fetches wheels to carry.")
    parser.add_argument("--python", default=PYTHON, help=f"of the machine with the GPU; default {PYTHON}")
    python = parser.parse_args(words).python
    found = download(python, folder_for(python))
    nbytes = sum(one.stat().st_size for one in found)
    print("\n".join([*(one.name for one in found), f"{len(found)} wheels, {nbytes / (1 << 20):.1f} MiB in {HERE}"]))
    if nbytes > MOST_BYTES:
        print(f"That is more than {MOST_BYTES >> 20} MiB.", file=sys.stderr)
    return int(nbytes > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
