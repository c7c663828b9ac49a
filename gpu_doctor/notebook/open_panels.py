"""The panels that are open in this kernel: one a cell, and not too many.

A panel keeps a widget in kernel and page, and the lines of its plots. So that of a cell that is run again, or that was
deleted, is closed; where many are open the oldest is, and the static result under it is shown again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

MOST_OPEN: Final = 16
"""Each holds its case, too."""


class Panel(Protocol):
    """What can be closed."""

    def close_panel(self) -> None:
        """Takes it out of kernel and page."""


_open: dict[str, Panel] = {}
"""By the cell they belong to, oldest first."""


def opened(panel: Panel, metadata: Mapping[str, Any]) -> None:
    """A panel is about to be shown: those that it replaces are closed.

    Args:
        panel: the new one.
        metadata: of the front end's request to run the cell: JupyterLab, Notebook 7 and VS Code name the cell
            (`cellId`), the first two also those deleted since the last one (`deletedCells`). A cell without a name
            replaces none.
    """
    cell = str(metadata.get("cellId") or f"unnamed {id(panel)}")
    replaced = [one for one in (cell, *(metadata.get("deletedCells") or ())) if one in _open]
    oldest = [one for one in _open if one not in replaced]
    for one in (*replaced, *oldest[: max(len(oldest) - MOST_OPEN + 1, 0)]):
        _open.pop(one).close_panel()
    _open[cell] = panel
