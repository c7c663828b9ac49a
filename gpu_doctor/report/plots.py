"""Draws the three plots of the static result: the lines of the live plots as SVG, with figures of the whole run."""

from __future__ import annotations

from html import escape
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.diagnosis import warmup_rows
from gpu_doctor.elements import MUTED, section
from gpu_doctor.formatting import clean
from gpu_doctor.recording import Column, Recording, Replay, series_key
from gpu_doctor.report.chart import Drawn, Stroke, chart, line_swatch
from gpu_doctor.report.plot_data import INK, PLOTS, UNITS, Layer, Line, in_order, seconds_of, title
from gpu_doctor.svg import GREY, as_image

MOST_LINES: Final = 6
"""Largest number of lines in a plot. A machine with eight GPUs has more: the first are drawn, the rest are counted."""
CUT_ABOVE: Final = 2.0
"""The static plot is cut off at the live plot's axis if its highest step (worker start, compilation) exceeds that axis
by more than this factor."""
_DASHES: Final = {"solid": "", "dashed": "6 2", "dotted": "2 2", "dotdash": "8 2 2 2"}


def plots(recording: Recording, filling: str = "") -> str:
    """Renders three plots side by side, each with its figures in the legend; '' if the run has no readings.

    Args:
        recording: run to draw.
        filling: known contents of the memory, written below the memory plot.
    """
    layer = Layer(Replay(recording))
    layer.read()
    drawn = (_plot(name, layer, recording, filling if name == "memory" else "") for name in PLOTS)
    return section("".join(drawn), ";display:flex;flex-wrap:wrap")


def _plot(name: str, layer: Layer, recording: Recording, filling: str) -> str:
    """Renders one plot with its legend; '' if the run has no line for it."""
    found = [line for line in in_order(layer.lines.values()) if line.plot == name]
    if not found:
        return ""
    lines, left_out = found[:MOST_LINES], len(found) - MOST_LINES
    tails = [layer.tails[line.key] for line in lines]
    top, cut = _top(name, layer, max(_most(tail.y) for tail in tails))
    more = f"and {left_out} more, not drawn" if left_out > 0 else ""
    remark = "; ".join(remark_part for remark_part in (filling, cut, more) if remark_part)
    strokes = [Stroke(GREY if line.colour == INK else line.colour, _DASHES[line.dash]) for line in lines]
    drawn = [Drawn(tail.x, tail.y, stroke, stroke is strokes[0]) for tail, stroke in zip(tails, strokes, strict=True)]
    labels = [clean(line.label, 60) for line in lines]
    figures = [_figure(line, layer, recording) for line in lines]
    called = f"{title(name, found)} {UNITS[name]}"
    summary = ", ".join(f"{label} {figure}" for label, figure in zip(labels, figures, strict=True))
    picture = as_image(chart(drawn, marks=layer.marks.epochs, top=top), f"{called}: {summary}", 340)
    legend = "".join(
        f'<div style="padding-left:26px;text-indent:-26px">'
        f"{as_image(line_swatch(stroke), '')} {escape(label)} <b style='white-space:nowrap'>{figure}</b></div>"
        for label, stroke, figure in zip(labels, strokes, figures, strict=True)
    )
    below = f'<div style="{MUTED}">{escape(remark)}</div>' if remark else ""
    style = "flex:1 1 230px;max-width:340px;margin:0 12px 6px 0;font-size:12px"
    return f'<div style="{style}"><div>{escape(called)}</div>{picture}{legend}{below}</div>'


def _top(name: str, layer: Layer, highest: float) -> tuple[float | None, str]:
    """Returns the end of the y axis (None to fit the data) and a phrase that says what is cut off there."""
    if name == "utilization":
        return 100.0, ""
    top = layer.top(name)
    if name != "latency" or top is None or not highest > CUT_ABOVE * top > 0:
        return None, ""
    return top, f"highest: {formatting.seconds(highest / 1e3)}, cut off"


def _figure(line: Line, layer: Layer, recording: Recording) -> str:
    """Returns the legend's figure for a line, computed from all readings and steps instead of the thinned points."""
    if line.plot == "latency":
        # From the first to the last measured step, like every share in the report.
        warm = recording.steps.rows(warmup_rows(recording.steps))
        seconds = seconds_of(warm, layer.clocked)[line]
        known = np.isfinite(seconds)
        batches = warm.batches_or_steps[known].sum()  # a row that stands for several steps counts as many times
        return f"mean {formatting.seconds(float(seconds[known].sum() / batches) if batches else float('nan'))}"
    values = next(series.values for series in recording.series if series_key(series.metric) == line.key)
    if line.plot == "memory":
        return f"peak {formatting.size(_most(values))}"
    finite = values[np.isfinite(values)]
    return f"mean {formatting.percent(float(finite.mean()) if len(finite) else float('nan'))}"


def _most(values: Column) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else float("nan")
