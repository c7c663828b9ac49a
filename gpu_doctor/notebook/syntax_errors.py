"""A SyntaxError of a cell, shown as IPython shows that of any cell: the user's lines, and none of ours.

Of a SyntaxError that passes through a magic IPython lists every frame, and it asks neither `__tracebackhide__` nor the
error. Of any other error it asks `_render_traceback_`, so what is raised is no SyntaxError, but one by name: programs
that read an output (nbclient's `allow_error_names`, papermill) know it by that.
"""

from __future__ import annotations

import itertools
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_OURS: Final = str(Path(__file__).parents[1])


class CellSyntaxError(Exception):
    """Stands for a SyntaxError of the user's."""

    def __init__(self, error: SyntaxError, lines: list[str]) -> None:
        """`lines`: what IPython is to show."""
        super().__init__(str(error))
        self.error = error
        """The one that was raised."""
        self._lines = lines

    def _render_traceback_(self) -> list[str]:
        """IPython's hook."""
        return self._lines


def as_in_any_cell(shell: InteractiveShell, error: SyntaxError) -> CellSyntaxError:
    """What to raise in the place of `error`, whose traceback, if any, begins in our frames."""
    frames = itertools.dropwhile(lambda one: one.filename.startswith(_OURS), traceback.extract_tb(error.__traceback__))
    lines = shell.SyntaxTB.structured_traceback(type(error), error, list(frames))
    kind = type(type(error).__name__, (CellSyntaxError,), {})
    shown: CellSyntaxError = kind(error, lines)
    return shown.with_traceback(error.__traceback__)
