"""Makes the HTML elements of the static result, in styles that notebook sanitizers keep."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from gpu_doctor.formatting import clean

LINE: Final = "1px solid rgba(128,128,128,0.35)"
MUTED: Final = "opacity:0.72"
MONO: Final = "font-family:monospace;font-size:12px"
FIGURES: Final = "font-variant-numeric:tabular-nums"
TOGETHER: Final = "white-space:nowrap"
# JupyterLab's own style would make all columns of a table equally wide, so that their text overlaps.
TABLE: Final = "border-collapse:collapse;table-layout:auto;border:none"


def safe(text: object, most: int = 1000) -> str:
    """Cleans foreign text, cuts it at `most` characters, and escapes it for HTML."""
    return escape(clean(text, most))


def section(body: str, style: str = "") -> str:
    """Wraps a part of the result in a block with a line above it; '' if the part is empty."""
    return f'<div style="padding:8px 14px;border-top:{LINE}{style}">{body}</div>' if body else ""


def folded(head: str, body: str, opened: bool = False) -> str:
    """Wraps a part of the result in a section that shows only its headline until it is unfolded."""
    return section(details(head, f"<div>{body}</div>", opened))


def details(head: str, body: str, opened: bool = False, style: str = "") -> str:
    """Wraps content in an element that unfolds when its headline is clicked."""
    styled = f' style="{style}"' if style else ""
    return f"<details{' open' if opened else ''}{styled}><summary>{head}</summary>{body}</details>"


def listed(items: Iterable[str]) -> str:
    """Makes a list of escaped sentences; '' for none."""
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<ul style="margin:4px 0;padding-left:20px">{entries}</ul>' if entries else ""
