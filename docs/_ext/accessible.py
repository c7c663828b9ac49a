"""What the theme leaves undone for people who do not see the page or have no mouse, written into the built pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx

BETTER: Final = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="This page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('overflow-x:auto">', 'overflow-x:auto" tabindex="0">'),
    ('<div id="search-results">', '<h1>Search</h1>\n<div id="search-results">'),
    ('<th class="head"><p></p></th>', "<td></td>"),
)
"""Found by axe: headings without a level, parts without a name, what keys cannot scroll, a page without a head."""


def improve(app: Sphinx, failed: Exception | None) -> None:
    """Rewrites every page."""
    if failed is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for old, new in BETTER:
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", improve)
    return {"parallel_read_safe": True}
