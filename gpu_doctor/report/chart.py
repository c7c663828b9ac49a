"""Draws line charts as SVG without a plot library: the readings of a run, the losses of a trial.

The charts have no background and mid-grey text and axes, so that they fit light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.recording import Column
from gpu_doctor.report.plot_data import thin
from gpu_doctor.svg import FONT, GREY, opened

MOST_POINTS: Final = 200
"""Points that a line is thinned to, two for every three pixels of a chart: six lines of noise take 30 kB."""
MOST_MARKS: Final = 40
_SIDES: Final = (36, 8, 8, 18)
"""Margins around the lines in pixels: left (at least), right, above, below."""


@dataclass(frozen=True)
class Stroke:
    """The style of a line."""

    colour: str
    dash: str = ""
    width: float = 1.5
    opacity: float = 1.0

    def written(self, scale: int = 1) -> str:
        """Returns the style as SVG attributes, with lengths multiplied by `scale`."""
        dash = " ".join(str(scale * int(length)) for length in self.dash.split())
        more = f" stroke-dasharray='{dash}'" if dash else ""
        more += f" stroke-opacity='{self.opacity}'" if self.opacity < 1.0 else ""
        return f"stroke='{self.colour}' stroke-width='{scale * self.width:g}'{more}"


@dataclass(frozen=True)
class Drawn:
    """One line of a chart: `x` and `y` of the same length (NaN = a gap)."""

    x: Column
    y: Column
    stroke: Stroke
    filled: bool = False
    """True to draw a pale area between the line and the lower edge."""
    cross: float | None = None
    """Position on x of a cross on the lower edge, which marks the first NaN or infinite value; None for none."""


def line_swatch(stroke: Stroke) -> str:
    """Draws a short sample of a line, for legends."""
    return f"{opened(22, 8)}<path d='M0 4H22' {stroke.written()}/></svg>"


def chart(
    lines: Sequence[Drawn],
    *,
    marks: Sequence[float] = (),
    width: int = 340,
    height: int = 150,
    top: float | None = None,
    fitted: bool = False,
    unit: str = " s",
) -> str:
    """Draws a line chart.

    Args:
        lines: lines to draw. Each is thinned to MOST_POINTS and keeps the lowest and highest value of every stretch.
        marks: x positions of thin vertical lines, such as epoch starts.
        width: width in CSS pixels.
        height: height in CSS pixels.
        top: upper end of the y axis, where higher values are cut off; None to show all of the data.
        fitted: True to begin the y axis at the lowest value instead of 0.
        unit: unit of x, written behind its last tick.
    """
    thinned = [thin(line.x, line.y, MOST_POINTS) for line in lines]
    x = np.concatenate([x_thinned for x_thinned, _ in thinned] or [np.empty(0)])
    y = np.concatenate([y_thinned for _, y_thinned in thinned] or [np.empty(0)])
    left, right, above, below = _SIDES
    up = _Axis(*_rounded(y, top, fitted), height - below, above)
    left = max(left, 10 + 6 * max(len(text) for _, text in up.ticks()))
    across = _Axis(*_ends(x), left, width - right)
    parts = [opened(width, height), f"<g fill='{GREY}' font-size='10' {FONT}>"]
    for value, text in up.ticks():
        level, opacity = up.at(value), 0.22 if value > up.low else 0.7
        parts.append(f"<path d='M{left} {level:.1f}H{width - right}' stroke='{GREY}' stroke-opacity='{opacity}'/>")
        parts.append(f"<text x='{left - 4}' y='{level + 3.5:.1f}' text-anchor='end'>{text}</text>")
    dotted = f"stroke='{GREY}' stroke-opacity='.6' stroke-dasharray='1 2'"
    inside = [mark for mark in marks if across.low <= mark <= across.high]
    for mark in inside[:: max(1, -(-len(inside) // MOST_MARKS))]:
        parts.append(f"<path d='M{across.at(mark):.1f} {above}V{height - below}' {dotted}/>")
    ticks = list(across.ticks())
    for number, (value, text) in enumerate(ticks, 1):
        at, label = across.at(value), text + (unit if number == len(ticks) else "")
        anchor = "end" if at > width - 24 else "middle"
        parts.append(f"<text x='{at:.1f}' y='{height - 5}' text-anchor='{anchor}'>{label}</text>")
    parts.append("</g>")
    for line, points in zip(lines, thinned, strict=True):
        parts.append(_path(*points, across.at, up, line))
        if line.cross is not None:
            place = f"M{across.at(line.cross) - 4:.1f} {up.begin - 8:.1f}l8 8m0-8l-8 8"
            parts.append(f"<path d='{place}' stroke='{line.stroke.colour}' stroke-width='2'/>")
    return "".join(parts) + "</svg>"


@dataclass(frozen=True)
class _Axis:
    """An axis: the range of values it shows and the range of pixels it covers."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Returns the pixel of a value; a value beyond an end maps to that end."""
        part = (value - self.low) / (self.high - self.low)
        return self.begin + min(max(part, 0.0), 1.0) * (self.end - self.begin)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yields the round values on the axis with their labels."""
        step = _tick(self.high - self.low)
        for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1):
            yield i * step, _figure(i * step, step)


def _ends(values: Column, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """Returns the lowest and the highest finite value, or the ends given as `low` and `high`; they always differ."""
    known = values[np.isfinite(values)]
    low = low if low is not None else float(known.min()) if len(known) else 0.0
    high = high if high is not None else float(known.max()) if len(known) else low + 1.0
    return low, high if high > low else low + (abs(low) * 0.01 or 1.0)


def _rounded(values: Column, top: float | None, fitted: bool) -> tuple[float, float]:
    """Returns the ends of an axis, rounded outwards to whole ticks."""
    low, high = _ends(values, None if fitted else 0.0, top)
    step = _tick(high - low)
    return step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)


def _tick(extent: float) -> float:
    """Returns the round step (1, 2 or 5 times a power of ten) that divides an extent into two to five parts."""
    power = 10.0 ** math.floor(math.log10(extent / 2.0))
    return next(step * power for step in (5.0, 2.0, 1.0) if extent / (step * power) >= 1.999)


def _figure(value: float, step: float) -> str:
    """Formats the value at a tick with enough digits to differ from the next tick."""
    if not value:
        return "0"
    scale, letter = next(((unit, name) for unit, name in ((1e9, "G"), (1e6, "M")) if abs(value) >= unit), (1.0, ""))
    if step < 1e-5 or abs(value) >= 1e13:
        return f"{value:.3g}"
    return formatting.grouped(value / scale, max(0, -math.floor(math.log10(step / scale) + 1e-9))) + letter


def _path(x: Column, y: Column, at_x: Callable[[float], float], up: _Axis, line: Drawn) -> str:
    """Draws a polyline in relative steps of a tenth of a pixel, which takes few characters; NaN leaves a gap."""
    words: list[str] = []
    area: list[str] = []
    floor = round(10 * up.begin)
    pen: tuple[int, int] | None = None
    for px, py in zip((*x.tolist(), math.nan), (*y.tolist(), math.nan), strict=True):
        if not (math.isfinite(px) and math.isfinite(py)):
            area += ["" if pen is None else f"V{floor}z"]
            pen = None
            continue
        to = round(10 * at_x(px)), round(10 * up.at(py))
        if pen is None:
            words.append(f"M{to[0]} {to[1]}h0")
            area.append(f"M{to[0]} {floor}V{to[1]}")
        elif to != pen:
            words.append(f"l{to[0] - pen[0]} {to[1] - pen[1]}")
            area.append(words[-1])
        pen = to
    if not words:
        return ""
    below = f"<path d='{''.join(area)}' fill='{line.stroke.colour}' fill-opacity='.1'/>" if line.filled else ""
    drawn = f"fill='none' {line.stroke.written(10)} stroke-linejoin='round' stroke-linecap='round'"
    return f"<g transform='scale(.1)'>{below}<path d='{''.join(words)}' {drawn}/></g>"
