"""Draws small pictures as SVG in `<img>` data URIs: the anatomy bar, a spread of values, swatches; without a library.

Notebook sanitizers strip inline SVG and styles but keep such images. The pictures suit light and dark pages: they have
no background, mid-grey text and axes, and a pattern, a dash or a label repeats the meaning of every colour.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from gpu_doctor.formatting import clean, share
from gpu_doctor.labels import PHASE_LABELS

PHASE_COLOURS: Final[Mapping[str, str]] = {
    "data_wait": "#D55E00",
    "transfer": "#E69F00",
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "optimizer": "#CC79A7",
    "sync": "#F0E442",
    "evaluation": "#009E73",
    "other": "#999999",
    "ours": "#D4D4D4",
}
"""Phase -> its colour everywhere (palette of Okabe and Ito 2008, which colour-blind readers can tell apart)."""

GREY: Final = "#808080"
"""Colour of text and axes: its contrast is 3.9 to 1 on white and 4.6 to 1 on JupyterLab's dark theme."""
_HEIGHT: Final = re.compile(r"<svg[^>]* height='(\d+)'")
FONT: Final = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
DARK: Final = ("backward",)
"""Phases whose colour needs white letters instead of black for a contrast of at least 4.5 to 1 (WCAG AA)."""
_PATTERNS: Final[Mapping[str, str]] = {
    "data_wait": "<path d='M-1 1L1-1M0 6L6 0M5 7L7 5' stroke-width='1.1'/>",
    "transfer": "<circle cx='3' cy='3' r='.9' fill='#000' stroke='none'/>",
    "backward": "<path d='M-1 5L1 7M0 0L6 6M5-1L7 1' stroke='#fff' stroke-width='1'/>",
    "optimizer": "<path d='M0 3H6' stroke-width='1'/>",
    "sync": "<path d='M3 0V6' stroke-width='1'/>",
    "evaluation": "<path d='M0 3H6M3 0V6' stroke-width='.8'/>",
    "other": "<path d='M0 0L6 6M0 6L6 0' stroke-width='.5'/>",
    "ours": "<circle cx='3' cy='3' r='.6' fill='#000' stroke='none'/>",
}


def address(svg: str) -> str:
    """Returns a picture as a data URI, for the address of an image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode('utf-8', 'replace')).decode('ascii')}"


def as_image(svg: str, alt: str, width: int | str | None = None) -> str:
    """Returns an `<img>` element that holds a picture.

    Args:
        svg: picture.
        alt: description of the picture in words.
        width: width in CSS pixels, or `100%`; None for the picture's own.
    """
    # If a sanitizer removes address and style, the attribute height keeps the empty frame small.
    high = _HEIGHT.search(svg) if width else None
    size = f' width="{width}" height="{high[1]}"' if high is not None else ""
    style = "max-width:100%;height:auto;vertical-align:middle"
    return f'<img src="{address(svg)}" alt="{escape(clean(alt))}"{size} style="{style}">'


def anatomy(
    shares: Mapping[str, float], width: int = 1000, height: int = 34, length: float = 1.0, mark: float | None = None
) -> str:
    """Draws the bar of a step: one piece per phase, as wide as its share, with a label if it fits.

    Args:
        shares: phase -> its share of the step, 0 to 1.
        width: width of the picture in CSS pixels.
        height: height in CSS pixels.
        length: length of the bar as a part of `width`, below 1 for the shorter of two bars.
        mark: position of a vertical line, as a part of the bar; None for no line.
    """
    total = sum(max(share_of_step, 0.0) for share_of_step in shares.values()) or 1.0
    pieces: list[str] = []
    x = 0.0
    for phase, colour in PHASE_COLOURS.items():
        wide = max(shares.get(phase, 0.0), 0.0) / total * length * width
        if wide <= 0:
            continue
        box = f"x='{x:.1f}' width='{wide:.1f}' height='{height}'"
        pieces.append(f"<rect {box} fill='{colour}'/>")
        if phase in _PATTERNS:
            pieces.append(f"<rect {box} fill='url(#{phase})' opacity='.28'/>")
        pieces.append(_piece_label(phase, shares[phase], x, wide, height))
        x += wide
    clip = f"<clipPath id='r'><rect width='{x:.1f}' height='{height}' rx='4'/></clipPath>"
    return (
        f"{opened(width, height)}<defs>{_patterns(shares)}{clip}</defs>"
        f"<g clip-path='url(#r)'>{''.join(pieces)}{_mark(mark, x, height)}</g></svg>"
    )


def _mark(share: float | None, length: float, height: int) -> str:
    """Draws a line across the bar that is visible on all of its colours."""
    if share is None:
        return ""
    at = f"d='M{share * length:.1f} 0V{height}'"
    return f"<path {at} stroke='#fff' stroke-width='6'/><path {at} stroke='#000' stroke-width='2'/>"


def spread_line(quantiles: Sequence[float], end: float) -> str:
    """Draws the spread of values on a scale from 0 to `end`.

    A line goes from the first quantile to the fifth, a box from the second to the fourth, and a mark is at the third.
    """
    width, height = 1000, 14
    first, low, middle, high, last = (width * min(quantile / end, 1.0) for quantile in quantiles)
    box = f"x='{low:.1f}' y='2' width='{max(high - low, 2.0):.1f}' height='{height - 4}'"
    return (
        f"{opened(width, height)}<path d='M{first:.1f} {height / 2}H{last:.1f}' stroke='{GREY}' stroke-width='2'/>"
        f"<rect {box} fill='{GREY}' fill-opacity='.55'/>"
        f"<path d='M{middle:.1f} 0V{height}' stroke='{GREY}' stroke-width='4'/></svg>"
    )


def swatch(phase: str) -> str:
    """Draws a square in a phase's colour and pattern, for legends."""
    size = 12
    box = f"width='{size}' height='{size}' rx='2'"
    over = f"<rect {box} fill='url(#{phase})' opacity='.4'/>" if phase in _PATTERNS else ""
    fill = f"<rect {box} fill='{PHASE_COLOURS[phase]}'/>"
    return opened(size, size) + f"<defs>{_patterns({phase: 1.0})}</defs>{fill}{over}</svg>"


def _piece_label(phase: str, part: float, x: float, wide: float, height: int) -> str:
    name = PHASE_LABELS[phase]
    text = next((t for t in (f"{name} {share(part)}", name) if 8.0 * len(t) + 10 < wide), "")
    if not text:
        return ""
    style = f"font-size='13' font-weight='600' {FONT} text-anchor='middle' fill='{ink(phase)}'"
    return f"<text x='{x + wide / 2:.1f}' y='{height / 2 + 4.5}' {style}>{escape(text)}</text>"


def ink(phase: str) -> str:
    """Returns the colour of letters on a phase's colour."""
    return "#ffffff" if phase in DARK else "#000000"


def _patterns(phases: Mapping[str, float]) -> str:
    return "".join(
        f"<pattern id='{phase}' width='6' height='6' patternUnits='userSpaceOnUse'>"
        f"<g stroke='#000'>{_PATTERNS[phase]}</g></pattern>"
        for phase in phases
        if phase in _PATTERNS
    )


def opened(width: int, height: int, more: str = "") -> str:
    """Returns the opening tag of a picture of a size in CSS pixels, with `more` attributes."""
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size}{more}>"
