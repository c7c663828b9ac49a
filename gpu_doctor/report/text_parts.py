"""The parts of the terminal report that come from trials. Every function returns text with foreign parts cleaned."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_doctor.diagnosis.as_text import BAR, wrapped
from gpu_doctor.report.before_after import BeforeAfter
from gpu_doctor.report.contract import Cell
from gpu_doctor.report.runs import Row, columns
from gpu_doctor.trials.compare import Effect


def compared(found: BeforeAfter | None) -> str:
    """Returns both sides of the newest trial with bars on one time scale; '' before any trial."""
    if found is None:
        return ""
    lines = [f"Before and after, {found.of}"]
    for side in found.sides:
        bar = "█" * round(BAR * side.step_s / found.scale_s) or "▏"
        lines.append(wrapped(f"{side.label}: {side.total}" + (f"; {side.spread}" if side.spread else ""), "  "))
        lines.append(f"    {bar}")
    return "\n".join(lines)


def runs(table: Sequence[Row], on_gpu: bool, effects: Sequence[Effect]) -> str:
    """Returns the table of runs and trials, in aligned columns."""
    head = columns(on_gpu, effects)
    cells = [head, *(tuple(_cell(cell) for cell in row.cells) for row in table)]
    # A long reason must not widen its column for all rows.
    widths = [max(len(row[i]) for row in cells if len(row[i]) <= 34) for i in range(len(head))]
    return "\n".join("  ".join(f"{cell:<{widths[i]}}" for i, cell in enumerate(row)).rstrip() for row in cells)


def _cell(cell: Cell) -> str:
    return ", ".join(part for part in (cell.text, cell.small) if part).replace("\u00a0", " ")
