"""The widget of the panel: one anywidget that draws everything, with BokehJS for the plots.

The panel's own script is small and travels with every panel. The plots need data that is large and the same for all
panels: BokehJS (the installed bokeh package's own `bokeh.min.js`) and the empty figures as JSON. One loader widget per
kernel carries both and the page finds it by its id, so there is no CDN and no front-end extension. A page that cannot
find the loader requests the data and gets it in the panel's own trait. Later panels of that kernel then bring it along,
because a request may wait until the cell ends, until a page reports that it found the loader after all.

State and rows travel to the page about twice a second, in one custom message with the points in a binary buffer.
Messages are numbered: a page that misses one requests everything. At the end of a run everything is also stored in
traits, so that a page that is loaded later shows it again.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import anywidget
import bokeh
import ipywidgets
import traitlets

_STATIC: Final = Path(__file__).parent / "static"
"""Folder that `frontend/` is built into."""
ASKS_BOKEH: Final = {"ask": "bokeh"}
FOUND_LOADER: Final = {"ask": "found"}
"""Message of a page that found the loader after all, such as a page that loaded slowly."""
_HELLO: Final = {"ask": "hello"}
"""First message of the page in a run."""


def _page_file(name: str) -> str:
    """Returns the text of a file of the page, with its own digest filled in."""
    text = (_STATIC / name).read_text(encoding="utf-8")
    return text.replace("BUILD_DIGEST", hashlib.sha256(text.encode()).hexdigest()[:16])


@functools.lru_cache(maxsize=1)
def bokeh_script() -> str:
    """Returns the text of BokehJS."""
    return (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")


class BokehLoader(ipywidgets.Widget):
    """An invisible widget that carries BokehJS and the figures for all panels of a page."""

    source = traitlets.Unicode().tag(sync=True)
    """Text of BokehJS."""
    figure = traitlets.Dict().tag(sync=True)
    """`plots.document` for the lines that are expected on this machine."""


_loaders: list[BokehLoader] = []
_unfound: set[str] = set()
"""Ids of the loaders that a page looked for and did not find."""


def loader(figure: dict[str, Any]) -> BokehLoader:
    """Returns the kernel's only loader; makes a new one if it was closed, as by `Widget.close_all()`.

    Args:
        figure: figures that a new loader carries.
    """
    if not _loaders or _loaders[0].comm is None:
        _loaders[:] = [BokehLoader(source=bokeh_script(), figure=figure)]
    return _loaders[0]


class DoctorView(anywidget.AnyWidget):
    """One panel, whose traits contain everything that a newly loaded page needs to draw it."""

    _esm = _page_file("panel.js")
    _css = _page_file("panel.css")
    bokeh = traitlets.Dict().tag(sync=True)
    """Data for the plots: `version` of BokehJS, id of the `loader`; `source` and `figure` for a page that requested
    them."""
    figure = traitlets.Dict().tag(sync=True)
    """`plots.document` for the drawn lines, if it differs from the loader's; else empty."""
    state = traitlets.Dict().tag(sync=True)
    """State of the panel (`panel.state`) as last stored."""
    rows = traitlets.Dict().tag(sync=True)
    """`head` and `data` of a message with all points, as last stored."""

    def __repr__(self) -> str:
        """Returns the text shown if no widget can be drawn; ipywidgets cuts it at 110 characters."""
        return "gpu_doctor: no live panel here, as it needs a running kernel and Jupyter widgets. The result is below."

    def __init__(self, on_request: Callable[[Any], None], figure: dict[str, Any]) -> None:
        """Makes the widget without displaying it.

        Args:
            on_request: called with every request of the page, on any thread.
            figure: `plots.document` for the lines that are drawn at first.
        """
        self._loader = loader(figure)
        needed = {"version": bokeh.__version__, "loader": self._loader.model_id}
        super().__init__(
            bokeh=needed | (self._bokeh_and_figure() if self._loader.model_id in _unfound else {}),
            figure={} if figure == self._loader.figure else figure,
        )
        self.on_msg(lambda _, content, buffers: self._on_message(content, on_request))
        self.clicks_live = _let_clicks_through(self)
        """True if the kernel can receive a click while a cell runs; the front end must also send it that way."""
        self.greeted: bool | None = None
        """True if the page's last message arrived on another thread than the main one; None before any message."""

    def _on_message(self, content: Any, on_request: Callable[[Any], None]) -> None:
        self.greeted = threading.current_thread() is not threading.main_thread()
        if content == _HELLO:
            return
        if content == ASKS_BOKEH:
            _unfound.add(self.bokeh["loader"])
            self.bokeh = {**self.bokeh, **self._bokeh_and_figure()}
        elif content == FOUND_LOADER:
            _unfound.discard(self.bokeh["loader"])
        else:
            on_request(content)

    def _bokeh_and_figure(self) -> dict[str, Any]:
        """Returns the data that the loader carries: the text of BokehJS, and the figures."""
        return {"source": bokeh_script(), "figure": self._loader.figure}

    def close(self) -> None:
        """Removes the panel and its layout from kernel and page."""
        self.layout.close()
        super().close()


def _let_clicks_through(widget: Any) -> bool:
    """Lets the page's messages arrive on their own thread while a cell runs; returns True if ipykernel supports that.

    ipykernel 7.4.0 sends the page's next message to the shell that last wrote to it, which the cell blocks, unless the
    page's own route is kept. The method is private, so it is replaced only if it exists.
    """
    comm: Any = getattr(widget, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
    try:
        return int(version("ipykernel").partition(".")[0]) >= 7
    except (PackageNotFoundError, ValueError):
        return False
