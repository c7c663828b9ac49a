"""Further environments, each in a `.venv-NAME` of its own: the lowest versions, the newest, what Colab ships, and what
Binder builds.

`python -m tests.support.environments lowest` builds one unless it is there and current, and prints its Python and what
stays untested; with `--test` it runs tests there, too. The versions stand in `versions/NAME.txt`; a comment behind a
version says why it is not the one that was asked for, and a line `# without NAME: ...` why a package is left out.

uv makes them. It is asked for torch's CPU build first; where that cannot be had it takes PyPI's, which brings up to
5 GB of CUDA and runs without a GPU all the same. A Python that is not on the machine is downloaded into
`.venv-pythons`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from tests.support.outcomes import REPORT
from tests.support.repository import ROOT

COLAB: Final = "colab"
BINDER: Final = "binder"
_VERSIONS: Final = Path(__file__).with_name("versions")
_DOWNLOADED: Final = ROOT / ".venv-pythons"
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+)(?:[ \t]+#[ \t]*(.+))?$", re.M)
_WITHOUT: Final = re.compile(r"^# without ([\w.-]+): (.+)$", re.M)
_EXTRAS: Final = ("lab", "ray", "dev", "frameworks")
"""What `pyproject.toml` offers beside the package itself. Left out: what builds the documentation, and the peers that
benchmarks measure."""


@dataclass(frozen=True)
class Environment:
    """What an environment is made of."""

    name: str
    pythons: tuple[str, ...]
    """Versions of Python, the best first."""
    requirements: tuple[str, ...]
    """Arguments of `uv pip install`."""
    apart: tuple[str, ...] = ()
    """Installed without what they ask for: fastai's Learner needs no torchvision."""
    without: tuple[str, ...] = ()
    """Files of tests that do not run in it."""
    steps: tuple[tuple[str, ...], ...] = ()
    """Commands that install the checkout, run in it; without any, its Python finds the checkout by a path."""

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.name}"

    @property
    def versions(self) -> Path:
        """Its list of versions, which the newest has not."""
        return _VERSIONS / f"{self.name}.txt"

    def listed(self) -> str:
        return self.versions.read_text(encoding="utf-8") if self.versions.is_file() else date.today().isoformat()


_TESTS: Final = ("tests/unit", "tests/kernel/test_magic.py", "tests/kernel/test_headless.py")
_OF_THE_TESTED: Final = "tests/unit/test_packaging.py::test_the_installed_set_is_the_pinned_one"
_WRITERS: Final = ("tensorboardX==2.6.5",)
"""A tracker that asks for little, for the cells that report to one."""
_LIST: Final = "tests/support/versions/{}.txt"
ENVIRONMENTS: Final = {
    one.name: one
    for one in (
        Environment("lowest", ("3.10",), ("-r", _LIST.format("lowest")), apart=("fastai==2.8.12", *_WRITERS)),
        Environment(
            COLAB, ("3.13",), ("-r", _LIST.format(COLAB)), apart=_WRITERS, without=("tests/unit/test_public_files.py",)
        ),
        Environment(
            "newest", ("3.13", "3.12", "3.11"), ("-r", "pyproject.toml", "--extra", "dev"), apart=("fastai", *_WRITERS)
        ),
        # What an image for Binder is made by: see `jupyter-repo2docker --no-build --debug .`
        Environment(
            BINDER,
            ("3.11",),
            ("-r", _LIST.format(BINDER)),
            steps=(("pip", "install", "--no-cache-dir", "-r", "binder/requirements.txt"), ("bash", "binder/postBuild")),
        ),
    )
}


def build(name: str = COLAB) -> Path:
    """Builds an environment unless it is there and current.

    Returns:
        Its Python.

    Raises:
        RuntimeError: if there is no such Python, or uv cannot install what is asked for (it says why).
    """
    one = ENVIRONMENTS[name]
    wanted, stamp = _fingerprint(one), one.folder / "stamp.txt"
    if stamp.is_file() and stamp.read_text() == wanted and python_of(name).exists():
        return python_of(name)
    base = python_for(*one.pythons)
    if base is None:
        raise RuntimeError(f"No Python {' or '.join(one.pythons)} was found, and none could be downloaded.")
    make(one.folder, base, found=not one.steps)
    _install(one)
    stamp.write_text(wanted)
    return python_of(name)


def python_of(name: str = COLAB) -> Path:
    """The Python of an environment."""
    return python_in(ENVIRONMENTS[name].folder)


def python_in(folder: Path) -> Path:
    """The Python of the environment in a folder."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def write_kernelspec(
    data_folder: Path, name: str = COLAB, through: Sequence[str] = (), python: Path | None = None
) -> str:
    """Registers an environment's kernel below a Jupyter data folder and returns its name.

    Args:
        through: a command that becomes the kernel, whose own command follows it. python: another one than the
            environment's own.
    """
    folder = data_folder / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    argv = [*through, str(python or python_of(name)), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name.title(), "language": "python"}))
    return name


def make(folder: Path, base: Path, found: bool = True) -> None:
    """Makes an empty environment whose Python finds this checkout, or does not; one that is there goes."""
    shutil.rmtree(folder, ignore_errors=True)
    uv("venv", "--quiet", "--no-project", "--python", str(base), str(folder))
    if not found:
        return
    site = run(str(python_in(folder)), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "zz_checkout.pth").write_text(f"{ROOT}\n")


def python_for(*versions: str) -> Path | None:
    """A Python of one of these versions, the best first: on the machine, or downloaded; None = none can be had."""
    return next(filter(None, map(interpreter, versions)), None) or _download(versions[0])


def interpreter(version: str) -> Path | None:
    """A Python of this version (`3.10`) on the machine: this one, on the path, of pyenv, or of uv; None = none."""
    return next((one for one in _candidates(version) if _answers(one, version)), None)


def untested(name: str) -> Iterator[str]:
    """One sentence for each floor, or each version of Colab's, that an environment does not hold.

    Raises:
        RuntimeError: if the lowest versions deviate from a floor of `pyproject.toml`, and their list does not say why.
    """
    one = ENVIRONMENTS[name]
    if not one.versions.is_file():
        return
    pins = {pin: (version, why) for pin, version, why in _PIN.findall(one.listed())}
    absent = dict(_WITHOUT.findall(one.listed()))
    deviating = {pin: "" for pin, (_, why) in pins.items() if why} | dict.fromkeys(absent, "")
    wanted = floors() if name == "lowest" else deviating
    for package, floor in wanted.items():
        version, why = pins.get(package, ("", absent.get(package, "")))
        if version and not why and f"{version}.".startswith(f"{floor}."):
            continue
        if not why:
            raise RuntimeError(f"{one.versions.name} does not say why {package} {floor} is not in it.")
        asked = f"{package} {floor}".strip()
        yield f"Untested: {asked}" + (f" ({version} is installed)" if version else "") + f": {why}."


def floors() -> dict[str, str]:
    """The lowest version of each package that `pyproject.toml` names, as it is written there."""
    import tomllib  # here, not above: what the oldest Python needs of this module needs neither of these
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    offered = project["project"]["optional-dependencies"]
    lists = [project["build-system"]["requires"], project["project"]["dependencies"]]
    lists += [offered[one] for one in _EXTRAS]
    found: dict[str, str] = {}
    for need in (Requirement(text) for texts in lists for text in texts):
        for clause in need.specifier:
            if clause.operator == ">=":
                found[canonicalize_name(need.name)] = clause.version
    return found


def uv(*arguments: str) -> str:
    """What a command of uv prints."""
    return run(sys.executable, "-m", "uv", *arguments)


def run(*command: str) -> str:
    """What a command prints, run in the checkout; what belongs to another Python stays out.

    Raises:
        RuntimeError: if it fails; the message holds what it said.
    """
    return _printed(command, _surroundings())


def _printed(command: Sequence[str], surroundings: Mapping[str, str]) -> str:
    plain = {name: value for name, value in surroundings.items() if name != REPORT}  # no part of its own
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def tested(name: str) -> bool:
    """Runs the environment's tests there and says whether they passed; they print as they go.

    Warnings are no errors here, and a unit test may take longer: both are judged with the tested versions.
    """
    one = ENVIRONMENTS[name]
    command = [str(python_of(name)), "-m", "pytest", "-q", "-n", "logical", "-W", "default", "--disable-warnings"]
    command += [*_TESTS, f"--deselect={_OF_THE_TESTED}", *(f"--ignore={path}" for path in one.without)]
    surroundings = _surroundings() | {"GPU_DOCTOR_UNIT_CPU_S": "60"}
    return subprocess.run(command, cwd=ROOT, env=surroundings, check=False).returncode == 0


def _surroundings() -> dict[str, str]:
    foreign = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in foreign}


def _install(one: Environment) -> None:
    """Installs with torch's CPU build, but beside an NVIDIA driver, or where PyTorch's own index is out of reach."""
    into = ("pip", "install", "--quiet", "--no-cache", "--only-binary", ":all:", "--python", str(python_of(one.name)))
    try:
        if sys.platform != "linux" or Path("/proc/driver/nvidia/version").exists():
            raise RuntimeError
        uv(*into, "--torch-backend", "cpu", *one.requirements)
    except RuntimeError:
        uv(*into, *one.requirements)
    if one.apart:
        uv(*into, "--no-deps", *one.apart)
    folder = python_of(one.name).parent
    inside = _surroundings() | {"PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    for step in one.steps:
        _printed((shutil.which(step[0], path=inside["PATH"]) or step[0], *step[1:]), inside)


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder, f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from pyenv.glob(f"versions/{version}.*/bin/python")
    yield from _DOWNLOADED.glob(f"cpython-{version}.*/bin/python{version}")
    try:
        yield Path(uv("python", "find", "--no-project", "--no-python-downloads", version).strip())
    except RuntimeError:
        return


def _answers(python: Path, version: str) -> bool:
    """Whether this is a Python of the version: pyenv puts names on the path behind which none may stand."""
    try:
        said = run(str(python), "-c", "import sys; print(*sys.version_info[:2], sep='.')")
    except (OSError, RuntimeError):
        return False
    return said.strip() == version


def _download(version: str) -> Path | None:
    try:
        uv("python", "install", "--quiet", "--no-bin", "--install-dir", str(_DOWNLOADED), version)
    except RuntimeError:
        return None
    return interpreter(version)


def _fingerprint(one: Environment) -> str:
    """Changes when the versions asked for, this file, or the checkout's place changes; the newest are of one day."""
    files = [ROOT / word for step in one.steps for word in step if (ROOT / word).is_file()]
    installed = [path.read_text(encoding="utf-8") for path in files]
    parts = (one.listed(), repr(floors()), repr(one), Path(__file__).read_text(), str(ROOT), *installed)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def main() -> None:
    """Builds one, tests it if asked to, and says where it is and what it leaves untested."""
    parser = argparse.ArgumentParser(description="Build an environment, and say what it leaves untested.")
    parser.add_argument("name", choices=sorted(ENVIRONMENTS))
    parser.add_argument("--test", action="store_true", help="run its tests, too")
    asked = parser.parse_args()
    try:
        print(build(asked.name), flush=True)
    except RuntimeError as error:
        sys.exit(f"Untested: the {asked.name} versions. {error}")
    passed = not asked.test or tested(asked.name)
    print(*untested(asked.name), sep="\n")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
