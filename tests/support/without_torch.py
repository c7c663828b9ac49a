"""A plugin for a Python without torch and Jupyter: what needs them is skipped, and most chosen tests must not be.

`pytest -p tests.support.without_torch` is what nox runs. That the product's half which reads recordings never asks for
torch, `tests/unit/test_architecture.py` proves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from typing import Any, Final

import pytest

ABSENT: Final = re.compile(r"No module named '(torch|IPython|PIL|bleach)\b")
FEWEST_SHARE: Final = 0.5
"""Part of the tests that must have passed."""
_outcomes: Final = Counter[str]()


def _skipped_where_absent(report: Any, where: str) -> Any:
    absent = ABSENT.search(str(report.longrepr)) if report.outcome == "failed" else None
    if absent:
        report.outcome, report.longrepr = "skipped", (where, 0, f"Skipped: needs {absent[1]}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skips a file that imports what is absent."""
    return _skipped_where_absent((yield), str(collector.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skips a test that imports what is absent."""
    return _skipped_where_absent((yield), str(item.path))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts how tests ended."""
    if report.when == "call":
        _outcomes[report.outcome] += 1


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fails a run of which most was skipped."""
    if not hasattr(session.config, "workerinput") and _outcomes["passed"] < FEWEST_SHARE * _outcomes.total():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"Only {_outcomes['passed']} of {_outcomes.total()} tests passed without torch.")
