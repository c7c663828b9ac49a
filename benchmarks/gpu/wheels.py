"""Packages that this Python lacks, out of wheels that were carried along: no pip, no network, nothing installed.

`python -m benchmarks.gpu.wheels` (`make gpu-wheels`) fills `benchmarks/gpu/wheels/` by pip, on a machine that has a
registry. On the machine with the GPU what is missing is unpacked into the output folder and put on the path behind
everything else. torch and numpy are not carried: they are large, and the machine's own are what is to be tried.
"""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).with_name("wheels")
CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"
MODULES: Final = {
    "psutil": "psutil",
    "nvidia-ml-py": "pynvml",
    "pytest": "pytest",
    "pluggy": "pluggy",
    "iniconfig": "iniconfig",
    "packaging": "packaging",
    "pygments": "pygments",
    "pytest-timeout": "pytest_timeout",
    "pytest-rerunfailures": "pytest_rerunfailures",
}
"""Package -> the module by which it is known to be there: what the product needs without a notebook, and pytest."""
OLD_MODULES: Final = {"exceptiongroup": "exceptiongroup", "tomli": "tomli", "typing-extensions": "typing_extensions"}
"""What pytest needs besides on Python 3.10."""
PYTHONS: Final = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES: Final = ("x86_64", "aarch64")
GLIBCS: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
MOST_BYTES: Final = 64 << 20


def missing() -> list[str]:
    """Packages that this Python does not have."""
    wanted = MODULES | (OLD_MODULES if sys.version_info < (3, 11) else {})
    return [package for package, module in wanted.items() if importlib.util.find_spec(module) is None]


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


def package_of(name: str) -> str:
    """The package in a wheel, by its file name."""
    return name.split("-")[0].replace("_", "-").lower()


def unpacked(packages: Iterable[str], folder: Path, wheels: Path = HERE) -> tuple[list[str], list[str]]:
    """Unpacks the wheels of these packages into the folder; returns those that are there, and those that are not."""
    python, machine = (sys.version_info[0], sys.version_info[1]), platform.machine()
    found, lacking = [], []
    for package in packages:
        fitting = [
            one
            for one in sorted(wheels.glob("*.whl"))
            if package_of(one.name) == package.lower() and fits(one.name, python, machine)
        ]
        if not fitting:
            lacking.append(package)
            continue
        with zipfile.ZipFile(fitting[-1]) as wheel:
            wheel.extractall(folder)
        found.append(package)
    return found, lacking


def download(folder: Path = HERE) -> int:
    """Fills the folder by pip; returns its bytes."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    for python in PYTHONS:
        for machine in MACHINES:
            packages = [*MODULES, *(OLD_MODULES if python == "3.10" else ())]
            platforms = [f"--platform={glibc}_{machine}" for glibc in GLIBCS]
            with tempfile.TemporaryDirectory() as fresh:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
                command += ["--no-deps", "--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
                command += [*platforms, f"--constraint={CONSTRAINTS}", f"--dest={fresh}", *packages]
                subprocess.run(command, check=True)
                for one in Path(fresh).glob("*.whl"):
                    (folder / one.name).write_bytes(one.read_bytes())
    return sum(one.stat().st_size for one in folder.glob("*.whl"))


def main(words: Sequence[str]) -> int:
    """Downloads; 1 if that is more than may travel."""
    nbytes = download()
    names = sorted(one.name for one in HERE.glob("*.whl"))
    print("\n".join([*names, f"{len(names)} wheels, {nbytes / (1 << 20):.1f} MiB in {HERE}"]))
    if nbytes > MOST_BYTES:
        print(f"That is more than {MOST_BYTES >> 20} MiB.", file=sys.stderr)
    return int(nbytes > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
