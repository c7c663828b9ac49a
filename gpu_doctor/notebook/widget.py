"""The panel in the page: one anywidget that draws everything, with BokehJS for the plots.

How it works: the panel's own script is small and travels with every panel. What plots need is large and the same for
all: BokehJS (the installed bokeh package's own `bokeh.min.js`) and the figures, empty, as JSON. One loader widget a
kernel carries both, and the page finds it by its id, so there is no CDN and no extension of ours. A page that cannot
find it asks, and is sent them in the panel's own trait; later panels of that kernel bring them along, since a question
may wait for the end of the cell, until a page says that it has found the loader after all.

The panel's state and the rows go one way, about twice a second, as one custom message with the points in a binary
buffer. Messages are numbered: a page that misses one asks for everything. At the
end of a run everything is also put into traits, so that a page that is loaded later shows it again.
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
"""What `frontend/` is built into."""
ASKS_BOKEH: Final = {"ask": "bokeh"}
FOUND_LOADER: Final = {"ask": "found"}
"""Of a page that has the loader after all, as one that was slow to load it."""
_HELLO: Final = {"ask": "hello"}
"""The page's first words in a run."""


def _built(name: str) -> str:
    """A file of the page; it knows its own digest."""
    text = (_STATIC / name).read_text(encoding="utf-8")
    return text.replace("BUILD_DIGEST", hashlib.sha256(text.encode()).hexdigest()[:16])


@functools.lru_cache(maxsize=1)
def bokeh_script() -> str:
    """The text of BokehJS."""
    return (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")


class BokehLoader(ipywidgets.Widget):
    """Shows nothing: the panels of a page find in it what their plots need."""

    source = traitlets.Unicode().tag(sync=True)
    """The text of BokehJS."""
    figure = traitlets.Dict().tag(sync=True)
    """`plots.document` of the lines that are expected on this machine."""


_loaders: list[BokehLoader] = []
_unfound: set[str] = set()
"""Ids of loaders that the newest page to look for them did not find."""


def loader(figure: dict[str, Any]) -> BokehLoader:
    """The kernel's one loader; a new one where it was closed, as by `Widget.close_all()`.

    Args:
        figure: carried by a new one.
    """
    if not _loaders or _loaders[0].comm is None:
        _loaders[:] = [BokehLoader(source=bokeh_script(), figure=figure)]
    return _loaders[0]


class DoctorView(anywidget.AnyWidget):
    """One panel. Its traits are what a page needs to draw it from nothing."""

    _esm = _built("panel.js")
    _css = _built("panel.css")
    bokeh = traitlets.Dict().tag(sync=True)
    """What plots need: `version` of BokehJS, id of the `loader`; `source` and `figure` for a page that asked."""
    figure = traitlets.Dict().tag(sync=True)
    """`plots.document` of the lines that are drawn, where it is not the loader's; else empty."""
    state = traitlets.Dict().tag(sync=True)
    """What `panel.state` made, as last written down."""
    rows = traitlets.Dict().tag(sync=True)
    """`head` and `data` of a message with all points so far, as last written down."""

    def __repr__(self) -> str:
        """What stands in the panel's place where no widget can be drawn; ipywidgets cuts it at 110 letters."""
        return "gpu_doctor: no live panel here, as it needs a running kernel and Jupyter widgets. The result is below."

    def __init__(self, asked: Callable[[Any], None], figure: dict[str, Any]) -> None:
        """Nothing is displayed yet.

        Args:
            asked: is called with every message of the page, on whatever thread it comes.
            figure: `plots.document` of the lines that are drawn at first.
        """
        self._loader = loader(figure)
        needed = {"version": bokeh.__version__, "loader": self._loader.model_id}
        super().__init__(
            bokeh=needed | (self._carried() if self._loader.model_id in _unfound else {}),
            figure={} if figure == self._loader.figure else figure,
        )
        self.on_msg(lambda _, content, buffers: self._hear(content, asked))
        self.clicks_live = _let_clicks_through(self)
        """The kernel hears a click while a cell runs, if the page has it sent that way."""
        self.greeted: bool | None = None
        """Whether the page's messages came that way; None = none came yet."""

    def _hear(self, content: Any, asked: Callable[[Any], None]) -> None:
        self.greeted = threading.current_thread() is not threading.main_thread()
        if content == _HELLO:
            return
        if content == ASKS_BOKEH:
            _unfound.add(self.bokeh["loader"])
            self.bokeh = {**self.bokeh, **self._carried()}
        elif content == FOUND_LOADER:
            _unfound.discard(self.bokeh["loader"])
        else:
            asked(content)

    def _carried(self) -> dict[str, Any]:
        """What the loader carries."""
        return {"source": bokeh_script(), "figure": self._loader.figure}

    def close(self) -> None:
        """Takes the panel out of kernel and page, with the layout that belongs to it."""
        self.layout.close()
        super().close()


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
