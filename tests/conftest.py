"""What holds for every test: nothing of ours survives it, failures are named at once, and few tests may run again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.leftovers import no_worker_survives as no_worker_survives
from tests.support.leftovers import nothing_of_ours_survives as nothing_of_ours_survives
from tests.support.leftovers import torch_as_it_was as torch_as_it_was
from tests.support.quiet import wait_for_a_quiet_moment

MARKED_FOLDERS: Final = {
    "browser": "browser",
    "docs": "browser",
    "external": "extra",
    "integration/faults": "extra",
    "integration/restore": "extra",
}
"""Folders of `tests/` in which every test carries this marker."""
MAY_RUN_AGAIN: Final = ("alone", "browser")
MOST_RERUNS: Final = 2
"""Tests of a run that may have failed at their first try."""

_failed_once: Final[dict[str, str]] = {}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background (`make test &`), a process ignores Ctrl-C, which Stop is made of; a kernel never does.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks whole folders, before `-m` chooses; only tests of clocks and of the browser may run again, once."""
    here = Path(__file__).parent
    for item in items:
        for folder, marker in MARKED_FOLDERS.items():
            if item.path.is_relative_to(here / folder):
                item.add_marker(marker)
        if any(item.get_closest_marker(name) for name in MAY_RUN_AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that compares clocks waits until other programs leave it the machine."""
    if item.get_closest_marker("alone"):
        wait_for_a_quiet_moment()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remembers which tests failed at their first try."""
    if report.outcome == "rerun":
        _failed_once.setdefault(report.nodeid, report.longreprtext.strip().splitlines()[-1])


class FailuresAtOnce:
    """Names each failure when it happens; pytest itself names all of them again at the end."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Writes the test's name on a line of its own."""
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Workers of xdist have no terminal: the process that started them names the failures."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(terminal), "failures_at_once")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """More than `MOST_RERUNS` tests that needed a second try fail the run."""
    if len(_failed_once) > MOST_RERUNS and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Names the tests that ran again, with what they said first."""
    for name, said in _failed_once.items():
        terminalreporter.write_line(f"RAN AGAIN {name}: {said}", yellow=True)
    if len(_failed_once) > MOST_RERUNS:
        terminalreporter.write_line(f"FAILED: {len(_failed_once)} tests ran again; {MOST_RERUNS} may.", red=True)
