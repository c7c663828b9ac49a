"""HTML as it is left by those who show saved notebooks and trust nobody: JupyterLab and GitHub.

JupyterLab's lists are those of its `packages/apputils/src/sanitizer.ts` as it was for most of 4.x, as far as a report
could use them; 4.6.6 keeps flex and grid as well. An address of an image is not looked at. GitHub does not publish the
lists of its notebook viewer: taken are those of its `html-pipeline`, which keep no style, no class and no `data:`. What
is right under them is right under wider ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from bleach.css_sanitizer import CSSSanitizer
from bleach.sanitizer import Cleaner

_TEXT: Final = ("b", "br", "code", "div", "em", "i", "p", "pre", "s", "small", "span", "strong", "sub", "sup")
_LISTS: Final = ("details", "summary", "li", "ol", "ul")
_TABLES: Final = ("table", "tbody", "td", "tfoot", "th", "thead", "tr")
TAGS: Final = frozenset((*_TEXT, *_LISTS, *_TABLES, "img"))
"""Kept by both."""
LAB_PROPERTIES: Final = frozenset(
    f"{side}{rest}"
    for side, rests in {
        "background": ("", "-color"),
        "border": ("", "-bottom", "-collapse", "-color", "-left", "-radius", "-right", "-spacing", "-style", "-top"),
        "font": ("", "-family", "-size", "-style", "-weight"),
        "margin": ("", "-bottom", "-left", "-right", "-top"),
        "max": ("-height", "-width"),
        "min": ("-height", "-width"),
        "overflow": ("", "-wrap", "-x", "-y"),
        "padding": ("", "-bottom", "-left", "-right", "-top"),
        "text": ("-align", "-decoration", "-indent", "-overflow", "-transform"),
        **dict.fromkeys(("color", "display", "float", "height", "line-height", "opacity", "table-layout"), ("",)),
        **dict.fromkeys(("vertical-align", "visibility", "white-space", "width", "word-break"), ("",)),
    }.items()
    for rest in rests
)
"""What it keeps of a style; `font-variant-numeric` is not among it in 4.6.6 either."""
GITHUB_ATTRIBUTES: Final = frozenset(
    ["align", "alt", "border", "colspan", "height", "open", "rowspan", "scope", "src", "title", "valign", "width"]
)


def by_jupyterlab(html: str) -> str:
    """As an untrusted notebook is shown."""
    attributes = {"*": ["class", "style", "title"], "img": ["alt", "height", "src", "width"], "details": ["open"]}
    css = CSSSanitizer(allowed_css_properties=LAB_PROPERTIES)
    return _cleaned(html, attributes, ("http", "https", "data"), css)


def by_github(html: str, images: bool = False) -> str:
    """Without any style.

    Args:
        images: keep those that lie in their address, as its notebook viewer may.
    """
    return _cleaned(html, {"*": sorted(GITHUB_ATTRIBUTES)}, ("http", "https", *(["data"] if images else [])))


def _cleaned(html: str, attributes: dict[str, list[str]], protocols: Iterable[str], css: Any = None) -> str:
    kept = frozenset(protocols)
    cleaner = Cleaner(tags=TAGS, attributes=attributes, protocols=kept, css_sanitizer=css, strip=True)
    return str(cleaner.clean(html))
