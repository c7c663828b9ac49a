"""Renders a diagnosis as text, section by section. Text that comes from the user's code is cleaned."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.as_data import DiagnosisData
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.words import (
    RISK_MARK,
    SAFETY_WORDS,
    anatomy_rows,
    first_cure,
    first_step,
    first_words,
    machine_facts,
    predicted_words,
    price,
    run_facts,
    silences,
    verdict_words,
)
from gpu_doctor.diagnosis.words import footer as footer_words
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS, PHASE_LABELS, heading
from gpu_doctor.recording import Recording

__all__ = ["BAR", "WIDTH", "anatomy", "findings", "footer", "header", "hints", "silent", "text", "verdict", "wrapped"]

WIDTH: Final = 100
HINTS: Final = "Without a price: risks, and what is worth a trial"
BAR: Final = 40
"""Characters of a bar for a share of 1."""


def text(found: DiagnosisData) -> str:
    """Renders the whole diagnosis, in lines of at most about 100 characters."""
    sections = (
        header(found.vitals),
        verdict(found),
        anatomy(found.vitals),
        findings(found),
        hints(found),
        silent(found),
        footer(found.vitals, found.notes),
    )
    return "\n\n".join(section for section in sections if section)


def wrapped(line: str, indent: str = "") -> str:
    """Breaks a line at the width of the report."""
    return textwrap.fill(
        line, WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2), break_on_hyphens=False
    )


def header(vitals: Vitals, recording: Recording | None = None) -> str:
    """Renders one line on the machine and one on the run."""
    machine = " · ".join([LABELS.product, *machine_facts(vitals.setup)])
    return machine + "\n" + " · ".join(run_facts(vitals, recording))


def verdict(found: DiagnosisData, price: float | None = None) -> str:
    """Renders the verdict and, under it, the first thing to try.

    Args:
        found: the diagnosis.
        price: price of an hour of this machine in dollars, to say what the loss costs; None = not known.
    """
    first = first_cure(found)
    todo = [] if first is None else _prescription(first[1], f"  {first_words(first[0])}: ", "       ")
    return "\n".join([wrapped(verdict_words(found, price)), *todo])


def _prescription(cure: Prescription, mark: str, indent: str) -> list[str]:
    """Renders a prescription as lines: its text after `mark`, then its code, indented."""
    note = ", ".join(part for part in (SAFETY_WORDS[cure.safety], predicted_words(cure)) if part)
    changes = f" {clean(cure.changes)}" if cure.changes else ""
    code = [f"{indent}    {line}" for line in clean(cure.code, 4000).splitlines()]
    return [wrapped(f"{clean(cure.text, 1000)} [{note}]{changes}", mark), *code]


def anatomy(vitals: Vitals) -> str:
    """Renders where the time of a step goes, one row per phase."""
    phases = anatomy_rows(vitals)
    lines = [f"{heading(LABELS.anatomy)}, {formatting.seconds(vitals.host_step_s)}"] if phases else []
    for phase, share, seconds in phases:
        bar = "█" * round(BAR * min(share, 1.0)) or "▏"
        lines.append(f"  {PHASE_LABELS[phase]:<11}{formatting.seconds(seconds):>9}{formatting.share(share):>13}  {bar}")
    return "\n".join(lines)


def findings(found: DiagnosisData) -> str:
    """Renders the findings, numbered."""
    return "\n".join(_finding(f"{number}.", finding, found) for number, finding in enumerate(found.findings, 1))


def hints(found: DiagnosisData) -> str:
    """Renders the findings without a price, under a heading of their own."""
    if not found.hints:
        return ""
    return "\n".join([HINTS, *(_finding("-", hint, found) for hint in found.hints)])


def _finding(mark: str, finding: Finding, found: DiagnosisData) -> str:
    """Renders a finding with its evidence and what to try; `mark` stands before it, such as its number."""
    cost, first = price(finding, found.vitals), first_step(found)
    headline = "" if finding.headline == found.verdict else f": {clean(finding.headline)}"
    lines = [wrapped(f"{mark} {clean(finding.rule)}, {cost}{headline}")]
    lines += [wrapped(clean(finding.risk, 1000), f"   {RISK_MARK} ")] if finding.risk else []
    lines += [wrapped(f"{clean(line, 1000)}", "   - ") for line in finding.evidence]
    for cure in finding.prescriptions:
        if cure is first:
            lines.append(wrapped(f"{clean(cure.text, 1000)} (see above)", "   > "))
            continue
        lines += _prescription(cure, "   > ", "     ")
    return "\n".join(lines)


def silent(found: DiagnosisData) -> str:
    """Renders the causes that could not be judged, by reason."""
    grouped = silences(found)
    if not grouped:
        return ""
    return "\n".join([heading(LABELS.not_judged), *(_silence(why, names) for why, names in grouped.items())])


def _silence(why: str, names: Sequence[str]) -> str:
    """Renders one reason with as many names of causes as fit on the line."""
    head = f"  {why}: " if len(names) == 1 else f"  {why}: {formatting.count(len(names), 'cause')}, "
    named = len(names)
    while named > 1 and len(head + ", ".join(names[:named])) + (16 if named < len(names) else 0) > WIDTH:
        named -= 1
    more = f" and {len(names) - named} more" if named < len(names) else ""
    return head + ", ".join(names[:named]) + more


def footer(vitals: Vitals, notes: Iterable[str]) -> str:
    """Renders the notes, then how many steps were measured and what measuring cost."""
    written = "\n".join(wrapped(f"Note: {clean(note)}") for note in notes)
    return "\n\n".join(part for part in (written, footer_words(vitals)) if part)
