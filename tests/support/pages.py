"""A headless Chromium for each file that asks for one, and a page with nothing on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.lab import launch_chromium, new_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        chromium = launch_chromium(playwright)
        yield chromium
        chromium.close()


@pytest.fixture
def blank(browser: Browser) -> Iterator[Page]:
    """A page with nothing on it, for a panel without a kernel."""
    context, tab = new_page(browser)
    yield tab
    context.close()
