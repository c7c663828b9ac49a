"""The panels that are open in this kernel: one a cell, and not too many.

A panel keeps a widget in kernel and page, and the lines of its plots. So that of a cell that is run again, or that was
deleted, is closed; where many are open the oldest is, and the static result under it is shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

MOST_OPEN: Final = 16
"""Each holds its case, too."""


_open: dict[str, Callable[[], None]] = {}
"""What closes each, by the cell they belong to, oldest first."""


def opened(close: Callable[[], None], request: Mapping[str, Any]) -> None:
    """A panel is about to be shown: those that it replaces are closed.

    Args:
        close: takes the new one out of kernel and page.
        request: the front end's message to run the cell. In its metadata JupyterLab, Notebook 7 and VS Code name the
            cell (`cellId`), the first two also those deleted since the last one (`deletedCells`). A cell without a
            name (nbclassic) is known by its text when it is run again.
    """
    metadata, code = request.get("metadata") or {}, (request.get("content") or {}).get("code")
    cell = str(metadata.get("cellId") or f"unnamed {code or id(close)}")
    replaced = [one for one in (cell, *(metadata.get("deletedCells") or ())) if one in _open]
    oldest = [one for one in _open if one not in replaced]
    for one in (*replaced, *oldest[: max(len(oldest) - MOST_OPEN + 1, 0)]):
        _open.pop(one)()
    _open[cell] = close
