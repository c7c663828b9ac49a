"""Makes the three Bokeh figures of the panel: utilization, memory, loader latency; x axes linked, all data empty.

The page fills them: points come as increments (`report.Layer`), colours from the page's theme, and the legend is HTML.
Every line has two sets of glyphs: `base`, and `trial`, broad and pale, for a candidate drawn over its baseline.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from bokeh.document import Document
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    InlineStyleSheet,
    PanTool,
    Range1d,
    Ray,
    ResetTool,
    Spacer,
    Span,
    VArea,
    WheelZoomTool,
)
from bokeh.models import Line as LineGlyph
from bokeh.plotting import figure

from gpu_doctor.formatting import DASH, DECIMALS, NARROW_SPACE, PERCENT_DECIMALS
from gpu_doctor.report import INK, PLOTS, UNITS, Line, title

HEIGHT: Final = 168
FIRST_S: Final = 2.0
"""End of the x axis before the first points, in seconds."""
_TOOLBAR_CSS: Final = ":host { background: transparent !important; opacity: 0.85; }"
"""Style of the toolbar, whose own background is white even on a dark page."""
_GREY: Final = "#8C8C8C"
_ON_DARK: Final = {"#0072B2": "#3D9EE0", "#009E73": "#2BBE93"}
"""Dark line colours -> lighter ones for a dark page."""
_TOPS: Final = {"utilization": 103.0, "memory": 1.0, "latency": 10.0}


@lru_cache(maxsize=16)
def document(lines: tuple[Line, ...]) -> dict[str, Any]:
    """Returns the figures as JSON for BokehJS, with the ids of their parts. The value is cached: do not change it.

    Args:
        lines: lines of all plots, in the order of the legends.

    Returns:
        `doc` (a Bokeh document), `root` (id of its root, which shows nothing and has the figures as tags), `x` (id of
        the range they share), and `plots`: for each plot its name, title, unit, number format, and ids.
    """
    shared = Range1d(0, FIRST_S, reset_start=0, reset_end=FIRST_S)
    figures, plots = [], []
    for name in PLOTS:
        mine = [line for line in lines if line.plot == name]
        fig, parts = _figure(name, mine, shared)
        figures.append(fig)
        decimals = PERCENT_DECIMALS if UNITS[name] == "%" else DECIMALS
        about = {"name": name, "title": title(name, mine), "unit": UNITS[name], "decimals": decimals}
        plots.append({**about, **parts})
    # The page makes each figure a root in a separate task, so that it is never busy for long.
    root = Spacer(visible=False, tags=figures)
    doc = Document()
    doc.add_root(root)
    written = {"thousands": NARROW_SPACE, "missing": DASH}
    return {"doc": doc.to_json(deferred=False), "root": root.id, "plots": plots, "x": shared.id, **written}


def _figure(name: str, lines: list[Line], x_range: Range1d) -> tuple[Any, dict[str, Any]]:
    """Makes one figure; returns it with the ids of its parts."""
    y_range = Range1d(0, _TOPS[name], reset_start=0, reset_end=_TOPS[name])
    pan = PanTool(dimensions="width")
    fig = figure(
        height=HEIGHT,
        sizing_mode="stretch_width",
        x_range=x_range,
        y_range=y_range,
        tools=[pan, BoxZoomTool(), WheelZoomTool(dimensions="width"), ResetTool()],
        active_drag=pan,
        active_scroll=None,
        toolbar_location="above",
        toolbar_inner=True,
        title=None,
        min_border_left=34,
        min_border_right=6,
    )
    fig.toolbar.logo, fig.toolbar.autohide = None, True
    fig.toolbar.stylesheets = [InlineStyleSheet(css=_TOOLBAR_CSS)]
    fig.background_fill_alpha = fig.border_fill_alpha = 0
    fig.outline_line_color = None
    fig.axis.minor_tick_line_color = None
    fig.axis.axis_line_color = fig.axis.major_tick_line_color = fig.axis.major_label_text_color = _GREY
    fig.axis.major_label_text_font_size, fig.axis.major_tick_in, fig.axis.major_tick_out = "11px", 0, 3
    fig.xaxis.ticker.desired_num_ticks, fig.yaxis.ticker.desired_num_ticks = 5, 4
    fig.center = list(fig.ygrid)
    fig.ygrid.grid_line_color = _GREY
    fig.ygrid.grid_line_alpha = 0.25
    marks = {
        "epochs": _marks(fig, "epoch", [4, 4], 0.7),
        "evaluations": _marks(fig, "evaluation", [1, 3], 1.0),
    }
    drawn = [_line(fig, line, filled=number == 0) for number, line in enumerate(lines)]
    cursor = Span(location=0, dimension="height", line_color=_GREY, line_width=1, visible=False)
    fig.add_layout(cursor)
    return fig, {"figure": fig.id, "y": y_range.id, "cursor": cursor.id, "marks": marks, "lines": drawn}


def _marks(fig: Any, name: str, dash: list[int], alpha: float) -> str:
    """Adds vertical lines at the x values of a new, empty source; returns the source's id."""
    source = ColumnDataSource({"x": []}, name=f"marks:{name}")
    up = Ray(x="x", y=0, length=0, angle=90, angle_units="deg", line_color=_GREY, line_dash=dash, line_alpha=alpha)
    fig.add_glyph(source, up)
    return str(source.id)


def _line(fig: Any, line: Line, filled: bool) -> dict[str, Any]:
    """Adds both glyph sets of a line, as plain glyphs (`fig.line` would make three of each).

    Returns:
        Data with which the page fills, colours, hides and names the line.
    """
    colour = _GREY if line.colour == INK else line.colour
    ids: dict[str, Any] = {}
    for layer, width, alpha in (("trial", 3.0, 0.45), ("base", 1.5, 1.0)):
        source = ColumnDataSource({"x": [], "y": []}, name=f"{layer}:{line.key}")
        glyphs = []
        if filled and layer == "base":
            glyphs.append(fig.add_glyph(source, VArea(x="x", y1=0, y2="y", fill_color=colour, fill_alpha=0.10)))
        dash = line.dash if layer == "base" else "solid"
        drawn = LineGlyph(line_color=colour, line_width=width, line_alpha=alpha, line_dash=dash)
        glyphs.append(fig.add_glyph(source, drawn))
        ids[layer] = {"source": source.id, "glyphs": [glyph.id for glyph in glyphs]}
    return {
        "key": line.key,
        "label": line.label,
        "title": line.title,
        "colour": line.colour,
        "onDark": _ON_DARK.get(line.colour, line.colour),
        "dash": line.dash,
        **ids,
    }
