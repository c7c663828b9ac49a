"""The open panels of this kernel: at most one per cell, and at most MOST_OPEN.

A panel holds a widget in kernel and page, and the lines of its plots. So the panel of a cell that is run again or was
deleted is closed. If too many are open, the oldest is closed, and the page shows the static result in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

MOST_OPEN: Final = 16
"""Largest number of open panels. Each also holds its case in memory."""


_open: dict[str, Callable[[], None]] = {}
"""Function that closes each panel, by the panel's cell, oldest first."""


def opened(close: Callable[[], None], request: Mapping[str, Any]) -> None:
    """Registers a panel that is about to be shown and closes the panels that it replaces.

    Args:
        close: removes the new panel from kernel and page.
        request: the front end's message to run the cell. In its metadata JupyterLab, Notebook 7 and VS Code name the
            cell (`cellId`); the first two also name the cells deleted since the last message (`deletedCells`). A cell
            without a name (nbclassic) is recognised by its text when it is run again.
    """
    metadata, code = request.get("metadata") or {}, (request.get("content") or {}).get("code")
    cell = str(metadata.get("cellId") or f"unnamed {code or id(close)}")
    replaced = [key for key in (cell, *(metadata.get("deletedCells") or ())) if key in _open]
    oldest = [key for key in _open if key not in replaced]
    for key in (*replaced, *oldest[: max(len(oldest) - MOST_OPEN + 1, 0)]):
        _open.pop(key)()
    _open[cell] = close
