"""Fixtures of the browser tests: one JupyterLab server, a Chromium for each test file, a page for each test.

The browser is closed at the end of each file, not of the run: playwright's synchronous face keeps an event loop
running in the main thread while it is open, which tests of other folders must not meet.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.lab import Lab, new_page
from tests.support.pages import blank as blank
from tests.support.pages import browser as browser
from tests.support.repository import ARTIFACTS

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes for the page whether its test has failed, at whichever try."""
    report = yield
    item.stash[_FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab; notebooks of all browser tests live side by side in `lab.root`, so name them apart."""
    with Lab(tmp_path_factory.mktemp("lab") / "home") as server:
        yield server


@pytest.fixture
def page(browser: Browser, lab: Lab, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A fresh page; after a failed test its picture is left in tests/artifacts, and every kernel is shut down."""
    context, tab = new_page(browser)
    yield tab
    if request.node.stash.get(_FAILED, False):
        _keep_picture(tab, request.node.nodeid)
    context.close()
    with contextlib.suppress(OSError):
        lab.end_kernels()
    lab.set_theme("light")


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest, lab: Lab) -> str:
    """Runs a test in both themes: ask for it before the notebook is opened."""
    name: str = request.param
    lab.set_theme(name)
    return name


def _keep_picture(tab: Page, nodeid: str) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", nodeid).strip("-")
    with contextlib.suppress(Exception):
        tab.screenshot(path=Path(ARTIFACTS) / f"failed-{name}.png")
