"""The HTML elements of which the sections of the static result are made, in styles that notebook sanitizers keep."""

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
# JupyterLab's own style makes all columns of a table equally wide; they would run into each other.
TABLE: Final = "border-collapse:collapse;table-layout:auto;border:none"


def safe(text: object, most: int = 1000) -> str:
    """Foreign text, cleaned and escaped for HTML."""
    return escape(clean(text, most))


def section(body: str, style: str = "") -> str:
    """A part of the result, with a line above it; '' where it is empty."""
    return f'<div style="padding:8px 14px;border-top:{LINE}{style}">{body}</div>' if body else ""


def folded(head: str, body: str, opened: bool = False) -> str:
    """A section that is a headline until it is unfolded."""
    return section(details(head, f"<div>{body}</div>", opened))


def details(head: str, body: str, opened: bool = False, style: str = "") -> str:
    """What is behind a headline."""
    styled = f' style="{style}"' if style else ""
    return f"<details{' open' if opened else ''}{styled}><summary>{head}</summary>{body}</details>"


def listed(items: Iterable[str]) -> str:
    """A list of sentences; '' for none."""
    said = "".join(f"<li>{escape(one)}</li>" for one in items)
    return f'<ul style="margin:4px 0;padding-left:20px">{said}</ul>' if said else ""
