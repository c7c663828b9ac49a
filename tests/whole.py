"""Runs the whole suite, part by part in processes of their own: `python -m tests.whole`, as `make test` does.

One process for everything grows a heap of millions of objects (three frameworks, Ray, a thousand kept modules): a full
garbage collection in it stops all threads for long, which tests of clocks and threads take for a fault of ours.

What compares no clocks of its own (`BESIDE`) runs beside the rest, which leaves a core idle half of the time.

What fails is run again, by itself in a fresh process, and said: many tests compare real clocks, and a machine that
stands still for two seconds is no defect. What fails then too has one last time after a pause, since a neighbour on the
same host computes for longer than that. More than `FEW` failures, or one that fails each time, end the run as failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
FEW: Final = 16
"""So many failures may be noise of the machine; more are a defect, or a machine on which nothing can be told."""
BESIDE: Final = ("browser", "rules", "old_kernel")
"""Folders whose tests run beside the others: a browser, an old kernel, and rules on made-up vitals."""
LAST: Final = ("frameworks", "test_forecast_real.py", "rules/test_memory_growth.py")
"""What leaves out checks, or cannot tell, while other programs use the cores: it comes when the rest is done."""
PAUSES_S: Final = (0.0, 45.0)
"""Seconds to wait before what failed is run again, for each of the times."""
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
        inside = path.relative_to(tests)
        last = any(str(one) in LAST for one in (inside, *inside.parents))
        group = "last" if last else inside.parts[0] if len(inside.parts) > 1 else ""
        groups.setdefault(group, []).append(str(path.relative_to(tests.parent)))
    for files in (*(groups[name] for name in groups if name != "last"), groups.get("last", [])):
        yield from (files[begin : begin + AT_ONCE] for begin in range(0, len(files), AT_ONCE))


def run(arguments: Iterable[str], failed: Path, root: Path, quiet: bool = False) -> int:
    """One pytest in `root`; its exit status, and its failures as lines of `failed`.

    Args:
        quiet: what it says is said at its end, in one piece.
    """
    command = [sys.executable, "-m", "pytest", "-p", "tests.whole", *arguments]
    done = failed.with_name(f"{failed.name}.done")
    done.unlink(missing_ok=True)
    output = subprocess.PIPE if quiet else None
    ended = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, _FAILED: str(failed)},
        stdout=output,
        stderr=output and subprocess.STDOUT,
        check=False,
    )
    if ended.stdout:
        sys.stdout.write("\n" + ended.stdout.decode("utf-8", "replace"))
        sys.stdout.flush()
    status = ended.returncode
    return status if done.exists() or status not in (0, 1) else UNFINISHED


class Lanes:
    """The parts in two processes at a time, those of `BESIDE` in the second."""

    def __init__(self, arguments: list[str], folder: Path, root: Path) -> None:
        self._arguments, self._folder, self._root = arguments, folder, root
        self._numbers = count()
        self._over = threading.Event()
        """A part was interrupted, crashed or was given a wrong argument: nothing is to be begun any more."""

    def run(self) -> set[int]:
        """The exit statuses of all parts that ran."""
        lanes: dict[bool, list[list[str]]] = {False: [], True: []}
        for files in parts(self._root / "tests"):
            lanes[all(Path(one).parts[1] in BESIDE for one in files)].append(files)
        with ThreadPoolExecutor(2) as pool:
            found = [pool.submit(self._lane, todo, beside) for beside, todo in lanes.items()]
            return {status for one in found for status in one.result()}

    def failures(self) -> list[str]:
        """The tests that failed, once each."""
        files = [path for path in sorted(self._folder.glob("failed-*")) if not path.suffix]
        lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
        return list(dict.fromkeys(lines))

    def _lane(self, todo: list[list[str]], quiet: bool) -> set[int]:
        statuses: set[int] = set()
        for files in todo:
            if self._over.is_set():
                break
            status = run([*self._arguments, *files], self._folder / f"failed-{next(self._numbers)}", self._root, quiet)
            statuses.add(status)
            if ends(status):
                self._over.set()
        return statuses


def ends(status: int) -> bool:
    """Whether nothing more can be told after an exit status: interrupted, a crash, a wrong argument."""
    return status not in (0, 1, _NOTHING_COLLECTED)


def main(arguments: list[str], root: Path = ROOT, pauses_s: Sequence[float] = PAUSES_S) -> int:
    """Every part of `root`/tests, then again what failed; the exit status of it all."""
    with tempfile.TemporaryDirectory() as folder:
        lanes = Lanes(arguments, Path(folder), root)
        statuses = lanes.run()
        over = next((status for status in sorted(statuses) if ends(status)), None)
        if over is not None:
            return over
        if statuses <= {_NOTHING_COLLECTED}:
            return _NOTHING_COLLECTED
        names = lanes.failures()
        if not names:
            return 0
        listed = "\n".join(f"  {name}" for name in names)
        if len(names) > FEW:
            print(f"{len(names)} tests failed:\n{listed}", flush=True)
            return 1
        for attempt, pause_s in enumerate(pauses_s):
            print(f"{len(names)} failed and run again, by themselves:\n{listed}", flush=True)
            time.sleep(pause_s)
            names = again(names, Path(folder, f"again-{attempt}"), root)
            if not names:
                print("They passed this time: noise of the machine.", flush=True)
                return 0
            listed = "\n".join(f"  {name}" for name in names)
        print(f"Failed each time:\n{listed}", flush=True)
        return 1


def again(names: list[str], failed: Path, root: Path) -> list[str]:
    """The tests among `names` that do not pass now either; one that is skipped has not passed."""
    status = run(names, failed, root)
    passed = failed.with_name(f"{failed.name}.passed")
    good = set(passed.read_text(encoding="utf-8").splitlines() if passed.exists() else [])
    bad = set(failed.read_text(encoding="utf-8").splitlines() if failed.exists() else [])
    left = [name for name in names if name not in good or name in bad]
    return left or (names if status else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
