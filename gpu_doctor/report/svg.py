"""Small pictures as SVG in `<img>` data URIs: the anatomy bar, line charts, swatches; pure strings, no plot library.

Notebook sanitizers strip inline SVG and styles but keep such images. They are drawn for light and dark pages alike:
no background, mid-grey text and axes, and a colour never stands alone (a pattern, a dash or a label says the same).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from gpu_doctor.formatting import PHASE_LABELS, clean, number, share
from gpu_doctor.recording import Column

PHASE_COLOURS: Final[Mapping[str, str]] = {
    "data_wait": "#D55E00",
    "transfer": "#E69F00",
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "optimizer": "#CC79A7",
    "sync": "#F0E442",
    "evaluation": "#009E73",
    "other": "#999999",
}
"""One colour per phase everywhere (Okabe and Ito 2008: told apart by colour-blind eyes)."""

LINE_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of lines that are no phase, in order."""
ON_DARK: Final[Mapping[str, str]] = {"#0072B2": "#3D9EE0", "#009E73": "#2BBE93"}
"""The two dark colours of lines, lighter where the page is dark."""
METRIC_COLOURS: Final[Mapping[str, str]] = {
    "gpu_util_pct": "#0072B2",
    "sm_active_pct": "#56B4E9",
    "cpu_util_pct": "#E69F00",
    "torch_allocated_bytes": "#0072B2",
    "torch_reserved_bytes": "#56B4E9",
    "gpu_memory_used_bytes": "#009E73",
    "process_rss_bytes": "#E69F00",
    "workers_rss_bytes": "#CC79A7",
}
"""Of the readings that have one colour in the live plots and in the static ones."""
GREY: Final = "#808080"
"""Text and axes: legible on white (3.9 to 1) and on JupyterLab's dark (4.6 to 1)."""
MOST_POINTS: Final = 200
"""Points a line is thinned to, two for every three pixels of a chart: six lines of noise take 30 kB."""
_HEIGHT: Final = re.compile(r"<svg[^>]* height='(\d+)'")
_DASHES: Final = ("", "6 2", "2 2", "8 2 2 2", "4 4", "1 3")
_FONT: Final = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
_PATTERNS: Final[Mapping[str, str]] = {
    "data_wait": "<path d='M-1 1L1-1M0 6L6 0M5 7L7 5' stroke-width='1.1'/>",
    "transfer": "<circle cx='3' cy='3' r='.9' fill='#000' stroke='none'/>",
    "backward": "<path d='M-1 5L1 7M0 0L6 6M5-1L7 1' stroke='#fff' stroke-width='1'/>",
    "optimizer": "<path d='M0 3H6' stroke-width='1'/>",
    "sync": "<path d='M3 0V6' stroke-width='1'/>",
    "evaluation": "<path d='M0 3H6M3 0V6' stroke-width='.8'/>",
    "other": "<path d='M0 0L6 6M0 6L6 0' stroke-width='.5'/>",
}


def as_image(svg: str, alt: str, width: int | str | None = None) -> str:
    """An `<img>` that holds the picture; `alt` says in words what it shows, `width` is in CSS pixels or `100%`."""
    data = base64.b64encode(svg.encode("utf-8", "replace")).decode("ascii")
    # Where a sanitizer takes address and style away, the height keeps the empty frame small; else the style sets it.
    high = _HEIGHT.search(svg) if width else None
    size = f' width="{width}" height="{high[1]}"' if high is not None else ""
    style = "max-width:100%;height:auto;vertical-align:middle"
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(clean(alt))}"{size} style="{style}">'


def anatomy(shares: Mapping[str, float], width: int = 1000, height: int = 34, length: float = 1.0) -> str:
    """The bar of a step: one piece per phase, as wide as its share (0..1), labelled where the label fits.

    Args:
        shares: of the whole, 0..1, by phase.
        width: in CSS pixels.
        height: in CSS pixels.
        length: of the bar, as a part of `width`, where it stands beside a longer one.
    """
    total = sum(max(one, 0.0) for one in shares.values()) or 1.0
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
        f"{_opened(width, height)}<defs>{_patterns(shares)}{clip}</defs>"
        f"<g clip-path='url(#r)'>{''.join(pieces)}</g></svg>"
    )


def spread(quantiles: Sequence[float], end: float) -> str:
    """How values spread, on a scale from 0 to `end`.

    A line from the first quantile to the fifth, a box from the second to the fourth, a mark at the third.
    """
    width, height = 1000, 14
    first, low, middle, high, last = (width * min(one / end, 1.0) for one in quantiles)
    box = f"x='{low:.1f}' y='2' width='{max(high - low, 2.0):.1f}' height='{height - 4}'"
    return (
        f"{_opened(width, height)}<path d='M{first:.1f} {height / 2}H{last:.1f}' stroke='{GREY}' stroke-width='2'/>"
        f"<rect {box} fill='{GREY}' fill-opacity='.55'/>"
        f"<path d='M{middle:.1f} 0V{height}' stroke='{GREY}' stroke-width='4'/></svg>"
    )


def swatch(phase: str) -> str:
    """A square in the phase's colour and pattern, for legends."""
    size = 12
    box = f"width='{size}' height='{size}' rx='2'"
    over = f"<rect {box} fill='url(#{phase})' opacity='.4'/>" if phase in _PATTERNS else ""
    fill = f"<rect {box} fill='{PHASE_COLOURS[phase]}'/>"
    return _opened(size, size) + f"<defs>{_patterns({phase: 1.0})}</defs>{fill}{over}</svg>"


def line_swatch(number_: int, colour: str = "") -> str:
    """A short stroke as line `number_` of a chart is drawn, for legends."""
    stroke = colour or LINE_COLOURS[number_ % len(LINE_COLOURS)]
    dash = f" stroke-dasharray='{_DASHES[number_ % len(_DASHES)]}'" if number_ else ""
    return _opened(22, 8) + f"<path d='M0 4H22' stroke='{stroke}' stroke-width='2.4'{dash}/></svg>"


@dataclass(frozen=True)
class Line:
    """One line of a chart: `x` and `y` of the same length (NaN = a gap)."""

    label: str
    x: Column
    y: Column
    colour: str = ""
    """Empty = the next of LINE_COLOURS."""


def chart(
    lines: Sequence[Line],
    *,
    marks: Sequence[float] = (),
    width: int = 340,
    height: int = 150,
    top: float | None = None,
) -> str:
    """A line chart.

    Args:
        lines: what to draw; each is thinned to MOST_POINTS, lowest and highest value of every stretch kept.
        marks: x positions of thin upright lines, such as epochs' begins.
        width: in CSS pixels.
        height: in CSS pixels.
        top: what the y axis, which begins at 0, must reach; higher values are cut off there (None = all of the data).
    """
    thinned = [thin(line.x, line.y) for line in lines]
    known = np.concatenate([x[np.isfinite(x)] for x, _ in thinned] or [np.empty(0)])
    first, last = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    last = last if last > first else first + 1.0
    highest = max((float(y[np.isfinite(y)].max()) for _, y in thinned if np.isfinite(y).any()), default=1.0)
    highest = highest if top is None else top
    step = _tick(highest)
    ceiling = step * max(1, math.ceil(highest / step - 1e-9))
    left, right, upper, lower = 36, 8, 8, 18
    wide, tall = width - left - right, height - upper - lower

    def at_x(value: float) -> float:
        return left + (value - first) / (last - first) * wide

    def at_y(value: float) -> float:
        return upper + (1 - min(max(value / ceiling, 0.0), 1.0)) * tall

    parts = [_opened(width, height), f"<g fill='{GREY}' font-size='10' {_FONT}>"]
    for i in range(round(ceiling / step) + 1):
        level = at_y(i * step)
        opacity = 0.22 if i else 0.7
        parts.append(f"<path d='M{left} {level:.1f}H{width - right}' stroke='{GREY}' stroke-opacity='{opacity}'/>")
        parts.append(f"<text x='{left - 4}' y='{level + 3.5:.1f}' text-anchor='end'>{_plain(i * step)}</text>")
    dotted = f"stroke='{GREY}' stroke-opacity='.6' stroke-dasharray='1 2'"
    parts += [
        f"<path d='M{at_x(mark):.1f} {upper}V{height - lower}' {dotted}/>" for mark in _spread(marks, first, last)
    ]
    tick = _tick(last - first)
    begin = math.ceil(first / tick)
    for i in range(begin, int(last / tick + 1e-9) + 1):
        name = " s" if i == int(last / tick + 1e-9) else ""
        anchor = "end" if at_x(i * tick) > width - 24 else "middle"
        parts.append(
            f"<text x='{at_x(i * tick):.1f}' y='{height - 5}' text-anchor='{anchor}'>{_plain(i * tick)}{name}</text>"
        )
    parts.append("</g>")
    for i, (x, y) in enumerate(thinned):
        parts.append(_path(x, y, at_x, at_y, lines[i].colour or LINE_COLOURS[i % len(LINE_COLOURS)], _DASHES[i % 6]))
    return "".join(parts) + "</svg>"


def thin(x: Column, y: Column, most: int = MOST_POINTS) -> tuple[Column, Column]:
    """At most about `most` points of a line with the same outline: lowest and highest of every stretch, in their order.

    Args:
        x: ascending, shape (n,).
        y: shape (n,); NaN is a gap and kept as one.
        most: points to keep, at least 2.

    Returns:
        x and y, shapes (k,), k <= most + 1, the last point among them; in a few milliseconds for a million points.
    """
    n = len(x)
    if n <= most:
        return x, y
    stretch = -(-n // (most // 2))
    rows = -(-n // stretch)
    padded = np.full(rows * stretch, np.nan)
    padded[:n] = y
    blocks = padded.reshape(rows, stretch)
    gap = np.isnan(blocks)
    low = np.where(gap, np.inf, blocks).argmin(axis=1)
    high = np.where(gap, -np.inf, blocks).argmax(axis=1)
    # A stretch of nothing but NaN gives its first point twice: the gap survives as one NaN.
    base = np.arange(rows) * stretch
    at = np.unique(np.concatenate([base + low, base + high, [n - 1]]).clip(max=n - 1))
    return x[at], y[at]


def _path(
    x: Column, y: Column, at_x: Callable[[float], float], at_y: Callable[[float], float], colour: str, dash: str
) -> str:
    """A polyline in steps of a tenth of a pixel, relative, so that it takes few characters; NaN lifts the pen."""
    words: list[str] = []
    pen: tuple[int, int] | None = None
    for px, py in zip(x.tolist(), y.tolist(), strict=True):
        if not (math.isfinite(px) and math.isfinite(py)):
            pen = None
            continue
        to = round(10 * at_x(px)), round(10 * at_y(py))
        if pen is None:
            words.append(f"M{to[0]} {to[1]}h0")
        elif to != pen:
            words.append(f"l{to[0] - pen[0]} {to[1] - pen[1]}")
        pen = to
    style = f" stroke-dasharray='{' '.join(str(10 * int(d)) for d in dash.split())}'" if dash else ""
    return (
        f"<path transform='scale(.1)' d='{''.join(words)}' fill='none' stroke='{colour}' stroke-width='15' "
        f"stroke-linejoin='round' stroke-linecap='round'{style}/>"
        if words
        else ""
    )


def _piece_label(phase: str, part: float, x: float, wide: float, height: int) -> str:
    name = PHASE_LABELS[phase]
    text = next((t for t in (f"{name} {share(part)}", name) if 8.0 * len(t) + 10 < wide), "")
    if not text:
        return ""
    ink = "#fff" if phase == "backward" else "#000"
    style = f"font-size='13' font-weight='600' {_FONT} text-anchor='middle' fill='{ink}'"
    return f"<text x='{x + wide / 2:.1f}' y='{height / 2 + 4.5}' {style}>{escape(text)}</text>"


def _patterns(phases: Mapping[str, float]) -> str:
    return "".join(
        f"<pattern id='{phase}' width='6' height='6' patternUnits='userSpaceOnUse'>"
        f"<g stroke='#000'>{_PATTERNS[phase]}</g></pattern>"
        for phase in phases
        if phase in _PATTERNS
    )


def _opened(width: int, height: int) -> str:
    return f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"


def _tick(extent: float) -> float:
    """A round step (1, 2 or 5 times a power of ten) that divides an extent into two to five parts."""
    if not (math.isfinite(extent) and extent > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(extent / 2.0))
    return next(step * power for step in (5.0, 2.0, 1.0) if extent / (step * power) >= 1.999)


def _plain(value: float) -> str:
    return (
        "0"
        if abs(value) < 1e-12
        else number(value).rstrip("0").rstrip(".")
        if value < 10
        else number(value).removesuffix(".0")
    )


def _spread(marks: Sequence[float], first: float, last: float, most: int = 40) -> list[float]:
    inside = [one for one in marks if first < one < last]
    return inside[:: max(1, -(-len(inside) // most))]
