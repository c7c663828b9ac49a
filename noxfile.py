"""Tests on other Pythons and with other versions: `nox`, or one session by name, such as `nox -s colab`.

Each session makes an environment of its own below `.nox`. `nox` alone runs those that take a minute or two. The others,
which `nox --list` names, install up to 5 GB where torch has no CPU build to offer.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
FAST = "not (alone or slow or browser or extra)"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VERSIONS = Path("tests/versions")
FASTAI = ("fastai", "tensorboardX")
"""Installed without what they ask for: fastai's Learner needs no torchvision."""

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["types", f"without_torch-{PYTHONS[0]}", f"without_torch-{PYTHONS[-1]}"]


def install(session: nox.Session, *requirements: str) -> None:
    """Installs with torch's CPU build, or with PyPI's where PyTorch's own index is out of reach."""
    try:
        session.install(
            *requirements, "--extra-index-url", CPU_INDEX, "--index-strategy", "unsafe-best-match", silent=True
        )
    except nox.command.CommandFailed:
        session.install(*requirements)


def fast_tests(session: nox.Session, *arguments: str) -> None:
    """Runs the fast tests; warnings are errors with the tested versions only, and a unit test may take longer here."""
    session.env["GPU_DOCTOR_UNIT_CPU_S"] = "60"
    session.run("pytest", "-q", "-n", "auto", "-m", FAST, "-W", "default", *arguments, *session.posargs)


@nox.session(python=False)
def types(session: nox.Session) -> None:
    """The product's types as each Python has them; mypy is that of the environment that runs nox."""
    for version in PYTHONS:
        session.run(sys.executable, "-m", "mypy", "--python-version", version, "-p", "gpu_doctor", external=True)


@nox.session(python=PYTHONS)
def without_torch(session: nox.Session) -> None:
    """What reads a recording runs where neither torch nor Jupyter is installed."""
    session.install("numpy", "psutil", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
    folders = [f"tests/unit/{name}" for name in ("recording", "diagnosis", "report")]
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "-p", "tests.support.without_torch", *folders)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The fast tests with the newest versions that a Python can have."""
    install(session, "-e", ".[dev]")
    session.install("--no-deps", *FASTAI)
    fast_tests(session)


@nox.session(python="3.10")
def lowest(session: nox.Session) -> None:
    """The fast tests with the lowest versions that pyproject.toml names."""
    install(session, "-r", str(VERSIONS / "lowest.txt"))
    session.install("--no-deps", "fastai==2.8.12", "tensorboardX==2.6.5")
    session.install("--no-deps", "-e", ".")
    fast_tests(session)


@nox.session(python="3.13")
def colab(session: nox.Session) -> None:
    """The fast tests with Colab's versions, and its kernel and page driven by the tests of `.venv`."""
    install(session, "-r", str(VERSIONS / "colab.txt"))
    session.install("--no-deps", "tensorboardX==2.6.5")
    session.install("--no-deps", "-e", ".")
    fast_tests(session)
    drive(session, "COLAB", "tests/kernel/test_old_kernel.py", "tests/kernel/test_colab_install.py")
    drive(session, "COLAB", "tests/browser/test_old_notebook.py")


@nox.session(python="3.11")
def binder(session: nox.Session) -> None:
    """Binder acted out: its builder reads `binder/`, and the notebooks run in what that builds, within its limits."""
    session.install("pip", "-r", str(VERSIONS / "binder.txt"))
    session.run("python", "-m", "pip", "install", "--quiet", "-r", "binder/requirements.txt")
    session.run("bash", "binder/postBuild", external=True)
    drive(session, "BINDER", "tests/kernel/test_binder.py")


@nox.session(python="3.11")
def package(session: nox.Session) -> None:
    """Builds the package, installs it elsewhere and runs the quickstart with it."""
    session.run("bash", ".ci/release-check", external=True, env={"PYTHON": "python"})


def drive(session: nox.Session, name: str, *tests: str) -> None:
    """Runs tests of the environment that runs nox against a kernel of the session's.

    Args:
        session: whose Python becomes the kernel's.
        name: of the kernel; the tests read its Python from `GPU_DOCTOR_<name>_PYTHON`.
        tests: files of tests.
    """
    python = str(Path(session.bin) / "python")
    env = {f"GPU_DOCTOR_{name}_PYTHON": python, "VIRTUAL_ENV": None, "PATH": _path_without(session)}
    session.run(sys.executable, "-m", "pytest", "-q", *tests, external=True, env=env)


def _path_without(session: nox.Session) -> str:
    return re.sub(rf"^{re.escape(session.bin)}:", "", session.env.get("PATH") or "")
