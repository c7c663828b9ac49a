"""The losses of both sides of a trial as a small picture: two lines over the samples seen, for light and dark pages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Losses
from gpu_doctor.report.svg import GREY, thin

Place = Callable[[float, float], tuple[float, float]]
WIDTH: Final = 340
HEIGHT: Final = 132
MOST_POINTS: Final = 160
CANDIDATE: Final = "#D55E00"
"""Okabe and Ito's vermilion: told from grey by colour-blind eyes; 3.9 to 1 on white, 4.9 to 1 on JupyterLab's dark."""
_LEFT: Final = 46
_RIGHT: Final = 8
_TOP: Final = 8
_BOTTOM: Final = 20
_FONT: Final = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"


def loss_lines(baseline: Losses, candidate: Losses, differs_from: int | None = None) -> str:
    """The picture as SVG: baseline broad and grey, candidate narrow and dashed on it, so both show where they meet.

    Losses that are NaN or infinite are gaps, and a cross on the lower edge says where the first one is. '' where one
    side has fewer than two finite losses. `differs_from`: the first step, counted from 1, at which the losses differ by
    more than rounding; an upright line stands there.
    """
    known = all(np.isfinite(one.samples).all() for one in (baseline, candidate))
    lines = [(one.samples if known else one.step, one.value) for one in (baseline, candidate)]
    finite = [y[np.isfinite(y)] for _, y in lines]
    if any(len(one) < 2 for one in finite):
        return ""
    first, last = _range(np.concatenate([x for x, _ in lines]))
    low, high = _range(np.concatenate(finite))
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - first) / (last - first) * (WIDTH - _LEFT - _RIGHT)
        down = _TOP + (high - y) / (high - low) * (HEIGHT - _TOP - _BOTTOM)
        return across, down

    right = WIDTH - _RIGHT
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'>",
        f"<g fill='{GREY}' font-size='10' {_FONT}>",
    ]
    for tick in ticks:
        level = at(first, tick)[1]
        parts.append(f"<path d='M{_LEFT} {level:.1f}H{right}' stroke='{GREY}' stroke-opacity='.25'/>")
        parts.append(f"<text x='{_LEFT - 5}' y='{level + 3.5:.1f}' text-anchor='end'>{_figure(tick, ticks)}</text>")
    across = _ticks(first, last, 4)
    for tick in across:
        place = at(tick, low)[0]
        anchor = "end" if place > WIDTH - 34 else "middle"
        parts.append(f"<text x='{place:.1f}' y='{HEIGHT - 6}' text-anchor='{anchor}'>{_short(tick)}</text>")
    there = np.flatnonzero(candidate.step == (differs_from or 0) - 1)
    if len(there):
        place = at(float(lines[1][0][there[0]]), low)[0]
        parts.append(f"<path d='M{place:.1f} {_TOP}V{HEIGHT - _BOTTOM}' stroke='{CANDIDATE}' stroke-dasharray='1 3'/>")
    parts.append("</g>")
    parts.append(_path(*thin(*lines[0], MOST_POINTS), at, f"stroke='{GREY}' stroke-width='4' stroke-opacity='.7'"))
    style = f"stroke='{CANDIDATE}' stroke-width='1.8' stroke-dasharray='5 2'"
    parts.append(_path(*thin(*lines[1], MOST_POINTS), at, style))
    for (x, y), colour in zip(lines, (GREY, CANDIDATE), strict=True):
        parts += _broken(x, y, at, low, colour)
    return "".join(parts) + "</svg>"


def loss_swatch(candidate: bool) -> str:
    """A short stroke as a side is drawn, for legends."""
    style = (
        f"stroke='{CANDIDATE}' stroke-width='1.8' stroke-dasharray='5 2'"
        if candidate
        else f"stroke='{GREY}' stroke-width='4' stroke-opacity='.7'"
    )
    head = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 22 8' width='22' height='8'>"
    return f"{head}<path d='M0 4H22' {style}/></svg>"


def _range(values: Column) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if high > low:
        return low, high
    room = abs(low) * 0.01 or 1.0
    return low - room, low + room


def _ticks(low: float, high: float, parts: int = 3) -> list[float]:
    """Round figures inside the range, about `parts` of them."""
    power = 10.0 ** math.floor(math.log10((high - low) / parts))
    step = next(one * power for one in (1.0, 2.0, 2.5, 5.0, 10.0) if (high - low) / (one * power) <= parts + 0.5)
    begin = math.ceil(low / step - 1e-9)
    found = [i * step for i in range(begin, math.floor(high / step + 1e-9) + 1)]
    return found or [low, high]


def _figure(value: float, among: list[float]) -> str:
    gap = min((b - a for a, b in itertools.pairwise(among)), default=abs(value) or 1.0)
    if abs(value) >= 1e5 or gap < 1e-5:
        return f"{value:.3g}"
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    return f"{value:.{decimals + (round(gap * 10**decimals, 6) % 1 > 0)}f}"


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:g}"


def _path(x: Column, y: Column, at: Place, style: str) -> str:
    words: list[str] = []
    pen = "M"
    for px, py in zip(x.tolist(), y.tolist(), strict=True):
        if not math.isfinite(py):
            pen = "M"
            continue
        across, down = at(px, py)
        words.append(f"{pen}{across:.1f} {down:.1f}")
        pen = "L"
    return f"<path d='{''.join(words)}' fill='none' {style} stroke-linejoin='round'/>"


def _broken(x: Column, y: Column, at: Place, low: float, colour: str) -> list[str]:
    """A cross where the first loss is no number."""
    bad = np.flatnonzero(~np.isfinite(y))
    if not len(bad):
        return []
    across, down = at(float(x[bad[0]]), low)
    return [f"<path d='M{across - 4:.1f} {down - 8:.1f}l8 8m0-8l-8 8' stroke='{colour}' stroke-width='2'/>"]
