"""Tests that compare clocks: one marked `quiet` that fails on a busy machine is inconclusive."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.quiet import BUSY_SHARE, Neighbours

_NEIGHBOURS = pytest.StashKey[Neighbours]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Begins to look at what other programs use."""
    item.stash[_NEIGHBOURS] = Neighbours()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure of a `quiet` test beside busy neighbours says nothing of us."""
    report = yield
    if call.when == "call" and report.failed and item.get_closest_marker("quiet"):
        share = item.stash[_NEIGHBOURS].share()
        if share > BUSY_SHARE:
            said = f"inconclusive: busy (other programs used {100 * share:.0f} % of the cores)"
            report.outcome, report.inconclusive = "skipped", True
            report.longrepr = (str(item.path), item.reportinfo()[1] or 0, said)
    return report
