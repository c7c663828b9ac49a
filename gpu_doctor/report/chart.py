"""Line charts as SVG, for light and dark pages: the readings of a run, the losses of a trial; no plot library.

No background, mid-grey text and axes.
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
"""Points a line is thinned to, two for every three pixels of a chart: six lines of noise take 30 kB."""
MOST_MARKS: Final = 40
_SIDES: Final = (36, 8, 8, 18)
"""Pixels around the lines: left at the least, right, above, below."""


@dataclass(frozen=True)
class Stroke:
    """How a line is drawn."""

    colour: str
    dash: str = ""
    width: float = 1.5
    opacity: float = 1.0

    def written(self, scale: int = 1) -> str:
        """As SVG's attributes, lengths times `scale`."""
        dash = " ".join(str(scale * int(one)) for one in self.dash.split())
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
    """A pale area lies between it and the lower edge."""
    cross: float | None = None
    """Where on x a cross stands on the lower edge: from there on the values are no numbers."""


def line_swatch(stroke: Stroke) -> str:
    """A short stroke, for legends."""
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
    """A line chart.

    Args:
        lines: what to draw; each is thinned to MOST_POINTS, lowest and highest value of every stretch kept.
        marks: x positions of thin upright lines, such as epochs' begins.
        width: in CSS pixels.
        height: in CSS pixels.
        top: what the y axis must reach; higher values are cut off there (None = all of the data).
        fitted: the y axis begins where the data does, not at 0.
        unit: of x, behind its last figure.
    """
    thinned = [thin(line.x, line.y, MOST_POINTS) for line in lines]
    x = np.concatenate([one for one, _ in thinned] or [np.empty(0)])
    y = np.concatenate([one for _, one in thinned] or [np.empty(0)])
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
    inside = [one for one in marks if across.low <= one <= across.high]
    for mark in inside[:: max(1, -(-len(inside) // MOST_MARKS))]:
        parts.append(f"<path d='M{across.at(mark):.1f} {above}V{height - below}' {dotted}/>")
    ticks = list(across.ticks())
    for number, (value, text) in enumerate(ticks, 1):
        at, said = across.at(value), text + (unit if number == len(ticks) else "")
        anchor = "end" if at > width - 24 else "middle"
        parts.append(f"<text x='{at:.1f}' y='{height - 5}' text-anchor='{anchor}'>{said}</text>")
    parts.append("</g>")
    for line, points in zip(lines, thinned, strict=True):
        parts.append(_path(*points, across.at, up, line))
        if line.cross is not None:
            place = f"M{across.at(line.cross) - 4:.1f} {up.begin - 8:.1f}l8 8m0-8l-8 8"
            parts.append(f"<path d='{place}' stroke='{line.stroke.colour}' stroke-width='2'/>")
    return "".join(parts) + "</svg>"


@dataclass(frozen=True)
class _Axis:
    """The values that an axis shows, and the pixels between which it lies."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value; one beyond the ends lies on them."""
        part = (value - self.low) / (self.high - self.low)
        return self.begin + min(max(part, 0.0), 1.0) * (self.end - self.begin)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Round values on it, with what they are called."""
        step = _tick(self.high - self.low)
        for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1):
            yield i * step, _figure(i * step, step)


def _ends(values: Column, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """The lowest and the highest number, or what is asked for; never the same."""
    known = values[np.isfinite(values)]
    low = low if low is not None else float(known.min()) if len(known) else 0.0
    high = high if high is not None else float(known.max()) if len(known) else low + 1.0
    return low, high if high > low else low + (abs(low) * 0.01 or 1.0)


def _rounded(values: Column, top: float | None, fitted: bool) -> tuple[float, float]:
    """The ends of an axis that begins and ends at round figures."""
    low, high = _ends(values, None if fitted else 0.0, top)
    step = _tick(high - low)
    return step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)


def _tick(extent: float) -> float:
    """A round step (1, 2 or 5 times a power of ten) that divides an extent into two to five parts."""
    power = 10.0 ** math.floor(math.log10(extent / 2.0))
    return next(step * power for step in (5.0, 2.0, 1.0) if extent / (step * power) >= 1.999)


def _figure(value: float, step: float) -> str:
    """A value at a tick, in as many digits as tell it from the next one."""
    if not value:
        return "0"
    scale, letter = next(((one, name) for one, name in ((1e9, "G"), (1e6, "M")) if abs(value) >= one), (1.0, ""))
    if step < 1e-5 or abs(value) >= 1e13:
        return f"{value:.3g}"
    return formatting.grouped(value / scale, max(0, -math.floor(math.log10(step / scale) + 1e-9))) + letter


def _path(x: Column, y: Column, at_x: Callable[[float], float], up: _Axis, line: Drawn) -> str:
    """A polyline in steps of a tenth of a pixel, relative, so that it takes few characters; NaN lifts the pen."""
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
