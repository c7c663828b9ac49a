"""Runs the whole suite, part by part in processes of their own: `python -m tests.whole`, as `make test` does.

One process for everything grows a heap of millions of objects (three frameworks, Ray, a thousand kept modules): a full
garbage collection in it stops all threads for long, which tests of clocks and threads take for a fault of ours.

What fails is run once more, by itself in a fresh process, and said: many tests compare real clocks, and a machine that
stands still for two seconds is no defect. More than `FEW` failures, or one that fails twice, end the run as failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
FEW: Final = 8
"""So many failures may be noise of the machine; more are a defect, or a machine on which nothing can be told."""
AT_ONCE: Final = 24
"""Test files that share a process."""
_FAILED: Final = "GPU_DOCTOR_FAILED_TESTS"
"""Variable with the path to which a part writes what failed; beside it lie `.passed` and, at its end, `.done`."""
_NOTHING_COLLECTED: Final = 5
UNFINISHED: Final = 70
"""A part that did not come to its end; its failures are not all that there is."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """As a plugin of each part: writes down what failed, a teardown included."""
    path = os.environ.get(_FAILED)
    if path and (report.failed or (report.passed and report.when == "call")):
        with Path(path if report.failed else f"{path}.passed").open("a", encoding="utf-8") as file:
            file.write(report.nodeid + "\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A part has come to its end: no test ended the process, and none was left out after a failure."""
    path = os.environ.get(_FAILED)
    if path and not session.shouldfail and not session.shouldstop:
        Path(f"{path}.done").touch()


def parts(tests: Path) -> Iterator[list[str]]:
    """The test files in groups: each folder by itself, and those at the top so many at once."""
    groups: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        inside = path.relative_to(tests).parts
        groups.setdefault(inside[0] if len(inside) > 1 else "", []).append(str(path.relative_to(tests.parent)))
    for files in groups.values():
        yield from (files[begin : begin + AT_ONCE] for begin in range(0, len(files), AT_ONCE))


def run(arguments: Iterable[str], failed: Path, root: Path) -> int:
    """One pytest in `root`; its exit status, and its failures as lines of `failed`."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.whole", *arguments]
    done = failed.with_name(f"{failed.name}.done")
    done.unlink(missing_ok=True)
    status = subprocess.run(command, cwd=root, env={**os.environ, _FAILED: str(failed)}, check=False).returncode
    return status if done.exists() or status not in (0, 1) else UNFINISHED


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Every part of `root`/tests, then once more what failed; the exit status of it all."""
    with tempfile.TemporaryDirectory() as folder:
        failed, again = Path(folder, "failed"), Path(folder, "again")
        failed.touch()
        statuses = set()
        for files in parts(root / "tests"):
            status = run([*arguments, *files], failed, root)
            statuses.add(status)
            if status not in (0, 1, _NOTHING_COLLECTED):  # interrupted, a crash, a wrong argument
                return status
        if statuses <= {_NOTHING_COLLECTED}:
            return _NOTHING_COLLECTED
        names = list(dict.fromkeys(failed.read_text(encoding="utf-8").splitlines()))
        if not names:
            return 0
        listed = "\n".join(f"  {name}" for name in names)
        if len(names) > FEW:
            print(f"{len(names)} tests failed:\n{listed}", flush=True)
            return 1
        print(f"{len(names)} failed and run once more, by themselves:\n{listed}", flush=True)
        status = run(names, again, root)
        passed = again.with_name("again.passed")
        left = set(names) - set(passed.read_text(encoding="utf-8").splitlines() if passed.exists() else [])
        status = status or (1 if left else 0)  # a test that is skipped now has not passed
        print("They passed this time: noise of the machine." if status == 0 else "Failed again.", flush=True)
        return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
