"""What a trial says before the click on cells that do more than train; nothing of them is run twice.

`python -m benchmarks.beforehand` prints, for each cell of tests/support/unusual_cells.py, every sentence that the panel
shows: `refused`, `note`, or `lost` where something would not come back.
"""

from __future__ import annotations

import contextlib
import tempfile

import gpu_doctor
from tests.support.unusual_cells import CELLS, notebook_of


def main() -> None:
    """Prints the sentences."""
    for cell in CELLS:
        print(f"\n{cell.name}")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), notebook_of(cell) as space:
            said = gpu_doctor.case("1", space)
            said.source = cell.cell
            told = said.beforehand()
        for kind, sentences in (("refused", told.refusals), ("note", told.notes), ("lost", told.lost)):
            for sentence in sentences:
                print(f"  {kind:<8}{sentence}")


if __name__ == "__main__":
    main()
