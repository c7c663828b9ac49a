"""The user's cells while knobs write their settings into them: text, the loop of the run, notes for the user."""

from __future__ import annotations

from gpu_doctor.cell import Edits, LoopLines, NotPlaced
from gpu_doctor.cell.calls import Cells
from gpu_doctor.cell.switches import torch_name, with_import
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.loader_edit import LoaderLines


class Draft:
    """The user's cells, the run's setup and the notes that a knob's `edit` works on."""

    def __init__(self, cells: Cells, setup: Setup) -> None:
        """Starts without edits; the cells themselves are never changed.

        Args:
            cells: cells that were run.
            setup: setup that a run as written recorded.
        """
        self.cells, self.setup = cells, setup
        self.loop = LoopLines(cells)
        self.notes: list[str] = []
        """Sentences for the user who applies the change."""
        self.loaders = LoaderLines(cells, setup, self.notes)

    @property
    def device(self) -> str:
        """Type of the device that the loop trains on: `cpu`, `cuda`, ..."""
        return self.setup.device.partition(":")[0]

    def torch(self) -> tuple[str, Edits]:
        """Returns the name of torch in the cells, and the edits that import it if there is none."""
        name = torch_name(self.cells)
        return (name, []) if name else ("torch", with_import(self.cells))

    def no_line(self, name: str, value: SettingValue) -> NotPlaced:
        """Returns the error of a knob that has no line for a value."""
        return NotPlaced(f"{name}={value} could not be written into the cells: set it by hand.")
