"""How a cell is changed where the data flows through functions."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from gpu_doctor.cell.fix import Fix
from tests.support.image_cells import IMAGES


def fixed(cell: str, settings: dict[str, Any], earlier: str = IMAGES) -> tuple[Fix, str]:
    """The fix of a cell after one run of it, and the fixed cell, which runs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(earlier, namespace)
    case = gpu_doctor.case(cell, namespace)
    case.run()
    fix = case.fix(settings, [earlier])
    after = {one.before: one.after for one in fix.cells}
    fresh: dict[str, Any] = {"__name__": "__main__"}
    exec(after.get(earlier, earlier), fresh)
    exec(after.get(cell, cell), fresh)
    return fix, after.get(cell, cell)
