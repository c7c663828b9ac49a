"""The catalogue of cells: training cells as people write them, each with its setup and what it is catalogued for.

Trials restore them, knobs are turned on them, and faults are raised while they run. A test takes the cells that have
what it is about, such as `{name: cell for name, cell in CELLS.items() if cell.knobs}`; those of a device stand in
`device.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.support.cells import device, loaders, state, training
from tests.support.cells.cell import SGD, Cell, ended, names, notebook, shut_down

__all__ = ["CELLS", "FAULTY", "SGD", "TROUBLED", "Cell", "OwnError", "ended", "names", "notebook", "shut_down"]

CELLS: Final[dict[str, Cell]] = {
    **training.CELLS,
    "convolutions": replace(device.on(device.IMAGES, "cpu"), restored=False, knobs=True),
    **loaders.CELLS,
    **state.CELLS,
}
FAULTY: Final = {name: cell for name, cell in CELLS.items() if cell.faults}
TROUBLE_AT: Final = 9
"""Number of the call in which the user's own code raises, in the cells in which it does."""


class OwnError(Exception):
    """An error of the user's own code."""


def _raising(name: str, function: str, error: BaseException) -> Cell:
    return replace(CELLS[name], trouble=(function, TROUBLE_AT), error=error)


TROUBLED: Final = {
    "dataset-raises": _raising("plain SGD", "item", OwnError("in the dataset")),
    "forward-raises": _raising("plain SGD", "forward", OwnError("in the forward")),
    "hook-raises": _raising("plain SGD", "backward hook", OwnError("in a hook of the backward")),
    "dataset-stops": _raising("plain SGD", "item", StopIteration("in the dataset")),
    "forward-stops": _raising("plain SGD", "forward", StopIteration("in the forward")),
    "interrupted": _raising("plain SGD", "forward", KeyboardInterrupt("by the user")),
    "closure-raises": _raising("LBFGS", "closure", OwnError("in the closure")),
}
"""Cells whose own code raises."""
