"""Shows a SyntaxError of a cell as IPython shows it in any cell: with the user's lines and none of ours.

For a SyntaxError that passes through a magic, IPython lists every frame and ignores `__tracebackhide__` and
`_render_traceback_`. For any other error it calls `_render_traceback_`. So we raise an error that is no SyntaxError but
has its name, by which programs that read an output (nbclient's `allow_error_names`, papermill) recognise it.
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
    """An error that replaces a SyntaxError in the user's code."""

    def __init__(self, error: SyntaxError, lines: list[str]) -> None:
        """Wraps an error.

        Args:
            error: error in the user's code.
            lines: lines of the traceback that IPython shows.
        """
        super().__init__(str(error))
        self.error = error
        """Error that was raised in the user's code."""
        self._lines = lines

    def _render_traceback_(self) -> list[str]:
        """Returns the lines of the traceback; IPython calls it."""
        return self._lines


def as_in_any_cell(shell: InteractiveShell, error: SyntaxError) -> CellSyntaxError:
    """Returns the error to raise instead of `error`; its traceback omits our own frames at the start."""
    frames = itertools.dropwhile(
        lambda frame: frame.filename.startswith(_OURS), traceback.extract_tb(error.__traceback__)
    )
    lines = shell.SyntaxTB.structured_traceback(type(error), error, list(frames))
    kind = type(type(error).__name__, (CellSyntaxError,), {})
    shown: CellSyntaxError = kind(error, lines)
    return shown.with_traceback(error.__traceback__)
