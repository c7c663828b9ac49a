"""The panel in the page: one anywidget that draws everything, with BokehJS for the plots.

How it works: the widget's script holds the text of the installed bokeh package's own `bokeh.min.js` and evaluates it once
per page, so there is no CDN, no extension of ours and no second message. The figure travels as `json_item` in a trait;
rows and the panel's state go one way as custom messages about twice a second. What is drawn is also put into traits at
the end of a run and when the page asks, so that a reloaded page shows it again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import bokeh
import traitlets

_HERE = Path(__file__).parent


@functools.lru_cache(maxsize=1)
def script() -> str:
    """The widget's module: our drawing code with BokehJS as a string constant in it."""
    source = (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")
    head = f"const BOKEH_VERSION = {json.dumps(bokeh.__version__)};\nconst BOKEH_SOURCE = {json.dumps(source)};\n"
    return head + (_HERE / "view.js").read_text(encoding="utf-8")


class DoctorView(anywidget.AnyWidget):
    """One panel. Its traits are what a page needs to draw it from nothing."""

    _esm = script()
    _css = (_HERE / "view.css").read_text(encoding="utf-8")
    figure = traitlets.Dict().tag(sync=True)
    """`bokeh.embed.json_item` of the plots."""
    sources = traitlets.Dict().tag(sync=True)
    """Line key -> id of its data source in the figure."""
    state = traitlets.Dict().tag(sync=True)
    """What `panel.state` made, as last written down."""
    rows = traitlets.Dict().tag(sync=True)
    """Line key -> all points so far, as last written down."""

    def __init__(self, figure: dict[str, Any], sources: dict[str, str], asked: Callable[[Any], None]) -> None:
        """`asked` is called with every message of the page, on whatever thread it comes."""
        super().__init__(figure=figure, sources=sources)
        self.on_msg(lambda _, content, buffers: asked(content))
        _let_clicks_through(self)


def _let_clicks_through(widget: Any) -> None:
    """ipykernel 7.4.0 answers on the main shell unless the reply goes where the page asked for; a private name."""
    comm = getattr(widget, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
