"""The pieces of the report for a terminal. Every function returns text whose foreign parts are cleaned."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Diagnosis, Finding, Prescription
from gpu_doctor.formatting import PHASE_LABELS, clean
from gpu_doctor.report.before_after import BeforeAfter
from gpu_doctor.report.contract import Ceiling, Cell
from gpu_doctor.report.labels import LABELS, heading
from gpu_doctor.report.runs import Row, columns
from gpu_doctor.report.words import (
    RISK_MARK,
    SAFETY_WORDS,
    anatomy_rows,
    first_cure,
    first_step,
    first_words,
    predicted_words,
    price,
    silences,
)
from gpu_doctor.trials.compare import Effect

WIDTH: Final = 100
_BAR: Final = 40


def wrapped(line: str, indent: str = "") -> str:
    """A line broken at the width of the report."""
    return textwrap.fill(
        line, WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2), break_on_hyphens=False
    )


def first_lines(diagnosis: Diagnosis) -> list[str]:
    """What to do first, under the verdict."""
    found = first_cure(diagnosis)
    return [] if found is None else _prescription(found[1], f"  {first_words(found[0])}: ", "       ")


def _prescription(one: Prescription, mark: str, indent: str) -> list[str]:
    said = ", ".join(part for part in (SAFETY_WORDS[one.safety], predicted_words(one)) if part)
    changes = f" {clean(one.changes)}" if one.changes else ""
    code = [f"{indent}    {line}" for line in clean(one.code, 4000).splitlines()]
    return [wrapped(f"{clean(one.text, 1000)} [{said}]{changes}", mark), *code]


def finding(mark: str, finding: Finding, diagnosis: Diagnosis) -> str:
    """A finding with its evidence and what to try; `mark` stands before it, such as its number."""
    said, first = price(finding, diagnosis.vitals), first_step(diagnosis)
    again = "" if finding.headline == diagnosis.verdict else f": {clean(finding.headline)}"
    lines = [wrapped(f"{mark} {clean(finding.rule)}, {said}{again}")]
    lines += [wrapped(clean(finding.risk, 1000), f"   {RISK_MARK} ")] if finding.risk else []
    lines += [wrapped(f"{clean(one, 1000)}", "   - ") for one in finding.evidence]
    for one in finding.prescriptions:
        if one is first:
            lines.append(wrapped(f"{clean(one.text, 1000)} (see above)", "   > "))
            continue
        lines += _prescription(one, "   > ", "     ")
    return "\n".join(lines)


def anatomy(diagnosis: Diagnosis, compared: BeforeAfter | None = None, bound: Ceiling | None = None) -> str:
    """Where the time of a step goes, as a row a phase."""
    phases = anatomy_rows(diagnosis.vitals)
    lines = [f"{heading(LABELS.anatomy)}, {formatting.seconds(diagnosis.vitals.host_step_s)}"] if phases else []
    for phase, share, seconds in phases:
        bar = "█" * round(_BAR * min(share, 1.0)) or "▏"
        lines.append(f"  {PHASE_LABELS[phase]:<11}{formatting.seconds(seconds):>9}{formatting.share(share):>13}  {bar}")
    lines += [wrapped(bound.text, "  ")] if bound is not None else []
    return "\n".join([*lines, *(_before_after(compared) if compared is not None else [])])


def _before_after(found: BeforeAfter) -> list[str]:
    """Both sides of a trial, their bars to one time scale."""
    lines = [f"Before and after, {found.of}"]
    for one in found.sides:
        bar = "█" * round(_BAR * one.step_s / found.scale_s) or "▏"
        lines.append(wrapped(f"{one.label}: {one.total}" + (f"; {one.spread}" if one.spread else ""), "  "))
        lines.append(f"    {bar}")
    return lines


def runs(table: Sequence[Row], on_gpu: bool, effects: Sequence[Effect]) -> str:
    """The table of runs and trials."""
    head = columns(on_gpu, effects)
    cells = [head, *(tuple(_cell(cell) for cell in row.cells) for row in table)]
    # A long reason must not push all columns apart: it ends its line.
    widths = [max(len(row[i]) for row in cells if len(row[i]) <= 34) for i in range(len(head))]
    return "\n".join("  ".join(f"{cell:<{widths[i]}}" for i, cell in enumerate(row)).rstrip() for row in cells)


def _cell(cell: Cell) -> str:
    return ", ".join(one for one in (cell.text, cell.small) if one).replace("\u00a0", " ")


def silent(diagnosis: Diagnosis) -> str:
    """The rules that could not judge this run, and why."""
    grouped = silences(diagnosis)
    if not grouped:
        return ""
    lines = [heading(LABELS.not_judged)]
    return "\n".join([*lines, *(_silence(why, names) for why, names in grouped.items())])


def _silence(why: str, names: Sequence[str]) -> str:
    """One line, with as many names as it holds."""
    head = f"  {why}: " if len(names) == 1 else f"  {why}: {formatting.count(len(names), 'cause')}, "
    named = len(names)
    while named > 1 and len(head + ", ".join(names[:named])) + (16 if named < len(names) else 0) > WIDTH:
        named -= 1
    more = f" and {len(names) - named} more" if named < len(names) else ""
    return head + ", ".join(names[:named]) + more
