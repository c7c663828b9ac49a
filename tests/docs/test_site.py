"""The built site: every link inside of it leads somewhere, every rule has its page, and everyone can read it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.trials.knobs import KNOBS
from tests.support.pages import blank as blank
from tests.support.pages import browser as browser
from tests.support.repository import ARTIFACTS, ROOT

SITE: Final = ROOT / "docs" / "_build" / "html"
pytestmark = pytest.mark.skipif(not SITE.exists(), reason="there is no site yet: make docs")
LOOKED_AT: Final = {
    "docs/index": "html",
    "docs/reference/panel": "html",
    "docs/reference/knobs": "html",
    "docs/reference/rules": "html",
    "docs/reference/rules/slow-python": "html",
    "docs/reference/python": r"dl:has(> #gpu_doctor\.load)",
    "docs/accuracy": "html",
    "notebooks/01_quickstart": "html",
    "CONTRIBUTING": "html",
    "search": "html",
}
"""A page of each kind, and what of it: of thousands of names axe takes minutes."""


class Links(HTMLParser):
    """Where a page leads, and the places in it that can be led to."""

    def __init__(self) -> None:
        super().__init__()
        self.to: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.to.append(value)
            elif name == "id" and value:
                self.places.add(value)


@cache
def links(path: Path) -> Links:
    """Those of a page."""
    found = Links()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def broken(path: Path) -> list[str]:
    """The links of a page that lead to no file of the site, or to no place in it."""
    wrong = []
    for link in links(path).to:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        placed = parts.fragment and target.suffix == ".html"
        if not target.is_file() or (placed and unquote(parts.fragment) not in links(target).places):
            wrong.append(link)
    return wrong


def pages() -> list[Path]:
    found = sorted(SITE.rglob("*.html"))
    assert found, "run: make docs"
    return [path for path in found if "_static" not in path.parts]


def text_of(name: str) -> str:
    return (SITE / f"{name}.html").read_text(encoding="utf-8")


def test_every_link_inside_of_the_site_leads_somewhere() -> None:
    assert {str(path.relative_to(SITE)): wrong for path in pages() if (wrong := broken(path))} == {}


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text('<p id="here">')
    page = tmp_path / "page.html"
    page.write_text('<a href="there.html#here"></a><a href="there.html#gone"></a><a href="gone.html"></a><a href="#x">')
    assert broken(page) == ["there.html#gone", "gone.html", "#x"]


def test_every_rule_has_its_page_and_every_knob_its_line() -> None:
    listed = text_of("docs/reference/rules")
    for rule in CAUSES:
        assert f'href="rules/{rule.name}.html"' in listed
        page = text_of(f"docs/reference/rules/{rule.name}")
        assert all(f"<h2>{title}" in page for title in ("When to leave it", "Sick and cured"))
    knobs = text_of("docs/reference/knobs")
    assert all(f">{name}</span>" in knobs for name in KNOBS)


def test_every_notebook_is_in_the_course() -> None:
    course = text_of("docs/course")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"notebooks/{path.stem}.html" in course


def test_a_measured_gain_is_on_the_page_of_its_rule() -> None:
    assert "a/tabular: 1.81x" in text_of("docs/reference/rules/slow-collate")


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing."""

    def log_message(self, *args: Any) -> None:
        """Not to the tests' output."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site as a host of static files serves it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_first_page_is_found_from_the_root(blank: Page, address: str) -> None:
    blank.goto(f"{address}/")
    blank.wait_for_url("**/docs/index.html")
    assert blank.locator("h1").inner_text().startswith("Start here")


def test_search_finds_a_rule(blank: Page, address: str) -> None:
    blank.goto(f"{address}/docs/index.html")
    blank.locator("input[name=q]").first.fill("pageable")
    blank.keyboard.press("Enter")
    blank.locator("#search-results a[href*='rules/pageable-transfer.html']").first.wait_for()


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_axe_finds_nothing_in_either_theme_and_nothing_is_asked_of_another_host(
    blank: Page, address: str, name: str, look: Any
) -> None:
    asked: list[str] = []
    blank.on("request", lambda request: asked.append(request.url))
    blank.emulate_media(color_scheme=look, reduced_motion="reduce")
    blank.goto(f"{address}/{name}.html", wait_until="load")
    for summary in blank.locator("article details > summary").all():
        summary.click()
    found = Axe().run(blank, context=LOOKED_AT[name], options={"resultTypes": ["violations"]}).response["violations"]
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    blank.screenshot(path=ARTIFACTS / f"docs-{name.replace('/', '-')}-{look}.png")
    assert [f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:4]]}" for one in found] == []
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    ground = blank.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (look == "light")
