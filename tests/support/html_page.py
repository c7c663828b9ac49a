"""A page of HTML as a person and a program see it."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"img", "br", "hr"}


TAGS = {"div", "span", "b", "img", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li", "pre"}

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>&amp;\"'\x1b[31m\x00\u202e\ud800"


class Page(HTMLParser):
    """Reads HTML strictly: every tag allowed and closed, no event handlers; keeps the text and the images' SVG."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.alts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        for name, value in attrs:
            assert name in {"style", "class", "src", "alt", "width", "height", "open"}, name
            if name == "src":
                kind, _, data = str(value).partition(",")
                assert kind == "data:image/svg+xml;base64"
                ElementTree.fromstring(base64.b64decode(data).decode())
            if name == "alt":
                self.alts.append(str(value))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def pictures(html: str) -> list[str]:
    """The SVGs of a page."""
    return [base64.b64decode(one).decode() for one in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", html)]
