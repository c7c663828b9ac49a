"""What trials add to the report for a terminal. Every function returns text whose foreign parts are cleaned."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_doctor.diagnosis.as_text import BAR, wrapped
from gpu_doctor.report.before_after import BeforeAfter
from gpu_doctor.report.contract import Cell
from gpu_doctor.report.runs import Row, columns
from gpu_doctor.trials.compare import Effect


def compared(found: BeforeAfter | None) -> str:
    """Both sides of the newest trial, their bars to one time scale; empty before any trial."""
    if found is None:
        return ""
    lines = [f"Before and after, {found.of}"]
    for one in found.sides:
        bar = "█" * round(BAR * one.step_s / found.scale_s) or "▏"
        lines.append(wrapped(f"{one.label}: {one.total}" + (f"; {one.spread}" if one.spread else ""), "  "))
        lines.append(f"    {bar}")
    return "\n".join(lines)


def runs(table: Sequence[Row], on_gpu: bool, effects: Sequence[Effect]) -> str:
    """The table of runs and trials."""
    head = columns(on_gpu, effects)
    cells = [head, *(tuple(_cell(cell) for cell in row.cells) for row in table)]
    # A long reason must not push all columns apart: it ends its line.
    widths = [max(len(row[i]) for row in cells if len(row[i]) <= 34) for i in range(len(head))]
    return "\n".join("  ".join(f"{cell:<{widths[i]}}" for i, cell in enumerate(row)).rstrip() for row in cells)


def _cell(cell: Cell) -> str:
    return ", ".join(one for one in (cell.text, cell.small) if one).replace("\u00a0", " ")
