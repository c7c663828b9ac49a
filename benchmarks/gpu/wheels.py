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
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).with_name("wheels")
ROOT: Final = Path(__file__).parents[2]
ODD: Final = {"nvidia-ml-py": "pynvml", "ipython": "IPython", "pyzmq": "zmq", "rpds-py": "rpds"}
"""Package -> the module by which it is known to be there, where its name does not tell it."""
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
    """Packages that this Python does not have."""
    return [one for one in PACKAGES if importlib.util.find_spec(ODD.get(one, one.replace("-", "_"))) is None]


def fits(name: str, python: tuple[int, int], machine: str) -> bool:
    """Whether a wheel of this file name runs on that Python and machine."""
    pythons, abis, platforms = name.removesuffix(".whl").split("-")[-3:]
    if not any(one == "any" or one.endswith(f"_{machine}") for one in platforms.split(".")):
        return False
    major, minor = python
    for one in pythons.split("."):
        if one in (f"py{major}", f"py{major}{minor}") and "none" in abis.split("."):
            return True
        if one == f"cp{major}{minor}":
            return True
        if "abi3" in abis.split(".") and one.startswith(f"cp{major}") and int(one[3:] or 0) <= minor:
            return True
    return False


def unpacked(packages: Iterable[str], folder: Path, wheels: Path = HERE) -> tuple[list[str], list[str]]:
    """Unpacks the wheels of these packages into the folder; returns those that are there, and those that are not."""
    python, machine = (sys.version_info[0], sys.version_info[1]), platform.machine()
    found, lacking = [], []
    for package in packages:
        names = [one for one in sorted(wheels.glob("*.whl")) if fits(one.name, python, machine)]
        fitting = [one for one in names if one.name.split("-")[0].replace("_", "-").lower() == package]
        if not fitting:
            lacking.append(package)
            continue
        with zipfile.ZipFile(fitting[-1]) as wheel:
            wheel.extractall(folder)
        found.append(package)
    return found, lacking


def environment(folder: Path, wheels: Path = HERE) -> tuple[Path, str]:
    """Makes the environment: this Python with all that it has, this checkout, and the wheels of what it lacks.

    Returns:
        Its Python, and a sentence on the wheels, if anything.
    """
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(folder)
    ours = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    known = [one for one in sys.path if Path(one).name in ("site-packages", "dist-packages")]  # of an environment too
    lines = [str(ROOT), *(f"import site; site.addsitedir({one!r})" for one in known)]
    (ours / "gpu_proof.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, lacking = unpacked(missing(), ours, wheels)
    said = f"Taken from the wheels carried along: {', '.join(found)}. " if found else ""
    if lacking:
        said += f"This Python lacks {', '.join(lacking)}: `make gpu-wheels` on a machine with a registry gets them."
    return folder / "bin" / "python", said.strip()


def download(python: str, folder: Path = HERE) -> int:
    """Fills the folder by pip with wheels for a Python; returns their bytes."""
    folder.mkdir(exist_ok=True)
    platforms = [f"--platform={glibc}_{platform.machine()}" for glibc in GLIBCS]
    with tempfile.TemporaryDirectory() as fresh:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms]
        command += [f"--constraint={ROOT / 'constraints.txt'}", f"--dest={fresh}", *PACKAGES]
        subprocess.run(command, check=True)
        for old in folder.glob("*.whl"):
            old.unlink()
        for one in Path(fresh).glob("*.whl"):
            (folder / one.name).write_bytes(one.read_bytes())
    return sum(one.stat().st_size for one in folder.glob("*.whl"))


def main(words: Sequence[str]) -> int:
    """Downloads; 1 if that is more than may travel."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.wheels", description="Fetches wheels to carry.")
    parser.add_argument("--python", default=PYTHON, help=f"of the machine with the GPU; default {PYTHON}")
    nbytes = download(parser.parse_args(words).python)
    names = sorted(one.name for one in HERE.glob("*.whl"))
    print("\n".join([*names, f"{len(names)} wheels, {nbytes / (1 << 20):.1f} MiB in {HERE}"]))
    if nbytes > MOST_BYTES:
        print(f"That is more than {MOST_BYTES >> 20} MiB.", file=sys.stderr)
    return int(nbytes > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
