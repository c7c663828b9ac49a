"""Counts how tests ended, and says aloud which of them needed a second chance or could not be judged.

A test under `real_clock/` or `browser/` that fails runs again, once (pytest-rerunfailures). That is printed with both
outcomes and kept in `tests/artifacts/second_chances.json`: more than `FEW` of them, or the same one in two runs in a
row, fail the run. A test that needs a quiet machine and met a busy one is *inconclusive* (`quiet.py`): more than
`INCONCLUSIVE_SHARE` of the tests fail the run too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.repository import ARTIFACTS

FEW: Final = 2
"""So many tests of a run may need a second chance."""
INCONCLUSIVE_SHARE: Final = 0.05
"""Of the tests of a run."""
AGAIN_IN: Final = ("tests/real_clock/", "tests/browser/")
"""Folders whose tests depend on a real clock, and so on what else the machine does."""
KINDS: Final = ("passed", "failed", "skipped", "inconclusive")
REPORT: Final = "GPU_DOCTOR_OUTCOMES"
"""Variable with the path to which the outcomes are written as JSON, for `tests.run`."""
FIRST_CHARACTERS: Final = 300
"""Of what a failure said."""


def may_run_again(nodeid: str) -> bool:
    """Whether a test may have a second chance."""
    return nodeid.startswith(AGAIN_IN)


def troubles(again: dict[str, str], before: dict[str, str], inconclusive: int, tests: int) -> list[str]:
    """Why a run fails though each of its tests passed in the end; empty = it does not.

    Args:
        again: tests that needed a second chance, with what they said first. before: those of the run before.
        inconclusive: how many tests met a busy machine. tests: how many there were.
    """
    found = []
    if len(again) > FEW:
        found.append(f"{len(again)} tests needed a second chance; {FEW} may.")
    found += [f"{name} needed a second chance in two runs in a row." for name in again if name in before]
    found += [f"{name} ran again, which no test of its folder may." for name in again if not may_run_again(name)]
    if inconclusive > INCONCLUSIVE_SHARE * tests:
        found.append(f"{inconclusive} of {tests} tests were inconclusive: the machine was too busy to judge them.")
    return found


def ran_again(name: str, first: str, then: str) -> str:
    """The line about a test that had a second chance."""
    return f"ran again: {name}: first {first!r}, then {then}"


def said(report: pytest.TestReport) -> str:
    """What a failure was, in one line: the exception's message where pytest knows it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longreprtext).strip().splitlines()
    return (lines or ["failed"])[0 if crash is not None else -1][:FIRST_CHARACTERS]


class Outcomes:
    """The pytest plugin."""

    def __init__(self, config: pytest.Config, kept: Path = ARTIFACTS / "second_chances.json") -> None:
        self._kept = kept
        self._worker = hasattr(config, "workerinput")
        self._ran: dict[str, str] = {}
        self._again: dict[str, str] = {}
        self._inconclusive: dict[str, str] = {}
        self._troubles: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes each phase of a test; the worst of the last attempt counts."""
        name, outcome = report.nodeid, str(report.outcome)
        if outcome == "rerun":
            self._again.setdefault(name, said(report))  # a teardown that fails too comes after it
            self._ran.pop(name, None)
        elif getattr(report, "inconclusive", False):
            self._ran[name] = "inconclusive"
            self._inconclusive[name] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else "busy")
        elif outcome != "passed" or report.when == "call":
            self._ran[name] = outcome if self._ran.get(name) != "failed" else "failed"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judges the run, keeps who needed a second chance, and writes the counts where they are asked for."""
        if self._worker:
            return
        counts = {kind: list(self._ran.values()).count(kind) for kind in KINDS}
        before: dict[str, str] = json.loads(self._kept.read_text()) if self._kept.exists() else {}
        self._troubles = troubles(self._again, before, counts["inconclusive"], len(self._ran))
        if any(may_run_again(name) for name in self._ran):
            left = {name: first for name, first in before.items() if name not in self._ran}
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            self._kept.write_text(json.dumps(left | self._again, indent=1))
        if self._troubles and exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if os.environ.get(REPORT):
            again = {name: [first, self._ran.get(name, "lost")] for name, first in self._again.items()}
            Path(os.environ[REPORT]).write_text(json.dumps({**counts, "again": again, "troubles": self._troubles}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says which tests ran again, with both outcomes, which could not be judged, and why the run fails for it."""
        for name, first in self._again.items():
            terminalreporter.write_line(ran_again(name, first, self._ran.get(name, "lost")))
        for name, reason in self._inconclusive.items():
            terminalreporter.write_line(f"{name}: {reason}")
        for one in self._troubles:
            terminalreporter.write_line(f"FAILED RUN: {one}", red=True)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """The word for a test that could not be judged."""
        if getattr(report, "inconclusive", False):
            return "inconclusive", "I", "INCONCLUSIVE: busy"
        return None
