"""The half of the package that needs no torch, on the other Pythons; and the types as those Pythons have them.

`python -m tests.support.other_pythons` does both, for Python 3.10 to 3.13. On each Python that is found it makes an
environment of numpy, psutil and pytest only (`.venv-python3.10`), runs the unit tests there, and lets it judge a
recording that this Python wrote: what was recorded beside a GPU is often looked at on a laptop. A unit test that cannot
import what such a machine has not is left out, unless the modules that judge recordings asked for it.
`... other_pythons types` checks the types only; mypy comes from the environment that runs this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.environments import make, python_for, python_in, run, uv
from tests.support.repository import ROOT

VERSIONS: Final = ("3.10", "3.11", "3.12", "3.13")
PACKAGES: Final = ("numpy", "psutil", "pytest", "pytest-timeout", "pytest-xdist")
FEWEST: Final = 2000
"""So many tests need no torch at least; fewer mean that they are left out by mistake."""
_GUESTS: Final = ("torch", "IPython", "ipywidgets", "anywidget", "bokeh", "traitlets", "pynvml", "ray")
_TOOLS: Final = ("click", "hatchling", "jupyter_client", "nbformat", "packaging", "playwright", "ruamel")
_LEFT_OUT: Final = ("tests/unit/test_packaging.py", "tests/unit/test_tiers.py", "tests/unit/machine")
"""They are about what is installed, torch with it, and about how the tests are run."""
_passed: Final[list[str]] = []
_JUDGED: Final = """
import sys
import gpu_doctor
diagnosis = gpu_doctor.diagnose(gpu_doctor.load(sys.argv[1]))
assert diagnosis.bottleneck == "input", diagnosis
assert "num_workers" in str(diagnosis), diagnosis
assert "gpu-doctor-static" in diagnosis._repr_html_()
assert not {"torch", "IPython", "bokeh"} & sys.modules.keys(), sorted(sys.modules)
"""


def missing(said: str) -> str:
    """The package for whose absence a test failed; empty if it failed for another reason.

    Args:
        said: the whole traceback. Where a module that judges recordings is in it, it is that module's failure.
    """
    from tests.unit.test_architecture import DIAGNOSIS_HALF

    absent = [one for one in (*_GUESTS, *_TOOLS) if f"No module named '{one}" in said]
    rooms = [one.replace(".", "/") for one in DIAGNOSIS_HALF.split()]
    asked = any(f"gpu_doctor/{one}{end}" in said for one in rooms for end in (".py", "/"))
    return absent[0] if absent and not asked else ""


def _left_out(report: Any, where: str) -> None:
    """Makes a failure for want of a package one that was skipped."""
    absent = missing(str(report.longrepr)) if report.outcome == "failed" else ""
    if absent:
        report.outcome = "skipped"
        report.longrepr = (where, 0, f"Skipped: needs {absent}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """As a plugin of those tests: a file that cannot be imported without torch is skipped."""
    report = yield
    _left_out(report, str(collector.path))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """And so is a test that imports it."""
    report = yield
    _left_out(report, str(item.path))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts tests that passed."""
    if report.when == "call" and report.passed:
        _passed.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Few tests mean that most were left out."""
    passed = len(_passed)
    if not hasattr(session.config, "workerinput") and exitstatus == 0 and passed < FEWEST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"Only {passed} tests passed without torch; at least {FEWEST} need none.")


def without_torch(version: str, recording: Path) -> str:
    """Runs the torch-free half on a Python of this version.

    Args:
        recording: a file with a recording of a loop that starves.

    Returns:
        What came of it, in one line.

    Raises:
        RuntimeError: if something fails there; the message holds what was said.
    """
    base = python_for(version)
    if base is None:
        return f"untested: Python {version} (no interpreter)"
    folder = ROOT / f".venv-python{version}"
    if not (folder / "stamp.txt").is_file():
        make(folder, base)
        uv("pip", "install", "--quiet", "--only-binary", ":all:", "--python", str(python_in(folder)), *PACKAGES)
        (folder / "stamp.txt").touch()
    python = str(python_in(folder))
    run(python, "-c", _JUDGED, str(recording))
    tests = ("tests/unit", *(f"--ignore={one}" for one in _LEFT_OUT))
    options = ("-p", "tests.support.other_pythons", "-q", "-n", "logical", "-r", "fE", "--durations", "0")
    return f"Python {version}: {run(python, '-m', 'pytest', *tests, *options).splitlines()[-1]}"


def types(version: str) -> str:
    """Checks the types of the package as a Python of this version has them.

    Returns:
        What mypy said at its end, in one line.

    Raises:
        RuntimeError: if it found something.
    """
    cache = ROOT / ".mypy_cache" / f"for-{version}"
    said = run(sys.executable, "-m", "mypy", "-p", "gpu_doctor", "--python-version", version, "--cache-dir", str(cache))
    return f"types for Python {version}: {said.splitlines()[-1]}"


def _starved(path: Path) -> Path:
    from tests.support.recordings import starved

    return starved().save(path)


def main() -> None:
    """Does what is asked for all versions, says what came of each, and fails if one failed."""
    parser = argparse.ArgumentParser(description="The torch-free half on other Pythons, and the types for them.")
    parser.add_argument("what", nargs="?", choices=("all", "types", "tests"), default="all")
    what = parser.parse_args().what
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        parts: list[Callable[[], str]] = []
        if what != "tests":
            parts += [partial(types, version) for version in VERSIONS]
        if what != "types":
            recording = _starved(Path(folder, "starved.npz"))
            parts += [partial(without_torch, version, recording) for version in VERSIONS]
        for part in parts:
            begin = time.monotonic()
            try:
                print(f"{part()} ({time.monotonic() - begin:.0f} s)", flush=True)
            except RuntimeError as error:
                failed += 1
                print(error, flush=True)
    sys.exit(f"{failed} of {len(parts)} failed." if failed else 0)


if __name__ == "__main__":
    main()
