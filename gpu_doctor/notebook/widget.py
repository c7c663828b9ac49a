"""The panel in the page: one anywidget that draws everything, with BokehJS for the plots.

How it works: the widget's script holds the text of the installed bokeh package's own `bokeh.min.js` and evaluates it
once per page, so there is no CDN and no extension of ours. The figures travel as JSON in a trait; the panel's state and
the rows go one way, about twice a second, as one custom message with the points in a binary buffer. At the end of a run
everything is also put into traits, so that a page that is loaded later shows it again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import anywidget
import bokeh
import traitlets

_HERE: Final = Path(__file__).parent / "frontend" / "src"
PIECES: Final = (
    *("vdom.js", "plots.js", "code.js", "runs_table.js"),
    *("searches.js", "parts.js", "page.js", "main.js"),
)
"""Our script, in the order in which it is put together; the last one exports the widget."""


@functools.lru_cache(maxsize=1)
def script() -> str:
    """The widget's module: BokehJS as a string constant, then our pieces."""
    source = (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")
    head = f"const BOKEH_VERSION = {json.dumps(bokeh.__version__)};\nconst BOKEH_SOURCE = {json.dumps(source)};\n"
    return head + "\n".join((_HERE / piece).read_text(encoding="utf-8") for piece in PIECES)


class DoctorView(anywidget.AnyWidget):
    """One panel. Its traits are what a page needs to draw it from nothing."""

    _esm = script()
    _css = (_HERE / "panel.css").read_text(encoding="utf-8")
    figure = traitlets.Dict().tag(sync=True)
    """`plots.document` of the lines that are drawn."""
    state = traitlets.Dict().tag(sync=True)
    """What `panel.state` made, as last written down."""
    rows = traitlets.Dict().tag(sync=True)
    """`head` and `data` of a message with all points so far, as last written down."""

    def __repr__(self) -> str:
        """What stands in the panel's place where no widget can be drawn, as in an exported notebook."""
        return "GPU Doctor's live panel needs a running notebook; its result is below."

    def __init__(self, asked: Callable[[Any], None], **traits: Any) -> None:
        """`asked` is called with every message of the page, on whatever thread it comes."""
        super().__init__(**traits)
        self.on_msg(lambda _, content, buffers: asked(content))
        self.clicks_live = _let_clicks_through(self)
        """The kernel hears a click while a cell runs (if the page is a JupyterLab of 4.4 or later)."""


def _let_clicks_through(widget: Any) -> bool:
    """Lets the page's messages come on a thread of their own while a cell runs, where ipykernel can do that.

    7.4.0 sends the page's next message to the shell that last wrote to it, which the cell blocks, unless the route is
    left as the page asked for it. The name is private, so it is looked for, not relied on.
    """
    comm: Any = getattr(widget, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
    try:
        return int(version("ipykernel").partition(".")[0]) >= 7
    except (PackageNotFoundError, ValueError):
        return False
