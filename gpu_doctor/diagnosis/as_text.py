"""A diagnosis for a terminal, section by section. Every function returns text whose foreign parts are cleaned."""

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
"""Characters of a bar that is as long as the whole."""


def text(found: DiagnosisData) -> str:
    """All of a diagnosis, lines of about 100 characters, verdict first."""
    sections = (
        header(found.vitals),
        verdict(found),
        anatomy(found.vitals),
        findings(found),
        hints(found),
        silent(found),
        footer(found.vitals, found.notes),
    )
    return "\n\n".join(one for one in sections if one)


def wrapped(line: str, indent: str = "") -> str:
    """A line broken at the width of the report."""
    return textwrap.fill(
        line, WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2), break_on_hyphens=False
    )


def header(vitals: Vitals, recording: Recording | None = None) -> str:
    """The machine, and below it the run."""
    machine = " · ".join([LABELS.product, *machine_facts(vitals.setup)])
    return machine + "\n" + " · ".join(run_facts(vitals, recording))


def verdict(found: DiagnosisData, price: float | None = None) -> str:
    """The verdict, and under it what to do first; with the price of an hour, what the loss costs."""
    first = first_cure(found)
    todo = [] if first is None else _prescription(first[1], f"  {first_words(first[0])}: ", "       ")
    return "\n".join([wrapped(verdict_words(found, price)), *todo])


def _prescription(one: Prescription, mark: str, indent: str) -> list[str]:
    said = ", ".join(part for part in (SAFETY_WORDS[one.safety], predicted_words(one)) if part)
    changes = f" {clean(one.changes)}" if one.changes else ""
    code = [f"{indent}    {line}" for line in clean(one.code, 4000).splitlines()]
    return [wrapped(f"{clean(one.text, 1000)} [{said}]{changes}", mark), *code]


def anatomy(vitals: Vitals) -> str:
    """Where the time of a step goes, as a row a phase."""
    phases = anatomy_rows(vitals)
    lines = [f"{heading(LABELS.anatomy)}, {formatting.seconds(vitals.host_step_s)}"] if phases else []
    for phase, share, seconds in phases:
        bar = "█" * round(BAR * min(share, 1.0)) or "▏"
        lines.append(f"  {PHASE_LABELS[phase]:<11}{formatting.seconds(seconds):>9}{formatting.share(share):>13}  {bar}")
    return "\n".join(lines)


def findings(found: DiagnosisData) -> str:
    """The findings, numbered."""
    return "\n".join(_finding(f"{number}.", one, found) for number, one in enumerate(found.findings, 1))


def hints(found: DiagnosisData) -> str:
    """What nothing measured prices, under a heading of its own."""
    if not found.hints:
        return ""
    return "\n".join([HINTS, *(_finding("-", one, found) for one in found.hints)])


def _finding(mark: str, one: Finding, found: DiagnosisData) -> str:
    """A finding with its evidence and what to try; `mark` stands before it, such as its number."""
    said, first = price(one, found.vitals), first_step(found)
    again = "" if one.headline == found.verdict else f": {clean(one.headline)}"
    lines = [wrapped(f"{mark} {clean(one.rule)}, {said}{again}")]
    lines += [wrapped(clean(one.risk, 1000), f"   {RISK_MARK} ")] if one.risk else []
    lines += [wrapped(f"{clean(line, 1000)}", "   - ") for line in one.evidence]
    for cure in one.prescriptions:
        if cure is first:
            lines.append(wrapped(f"{clean(cure.text, 1000)} (see above)", "   > "))
            continue
        lines += _prescription(cure, "   > ", "     ")
    return "\n".join(lines)


def silent(found: DiagnosisData) -> str:
    """The rules that could not judge this run, and why."""
    grouped = silences(found)
    if not grouped:
        return ""
    return "\n".join([heading(LABELS.not_judged), *(_silence(why, names) for why, names in grouped.items())])


def _silence(why: str, names: Sequence[str]) -> str:
    """One line, with as many names as it holds."""
    head = f"  {why}: " if len(names) == 1 else f"  {why}: {formatting.count(len(names), 'cause')}, "
    named = len(names)
    while named > 1 and len(head + ", ".join(names[:named])) + (16 if named < len(names) else 0) > WIDTH:
        named -= 1
    more = f" and {len(names) - named} more" if named < len(names) else ""
    return head + ", ".join(names[:named]) + more


def footer(vitals: Vitals, notes: Iterable[str]) -> str:
    """The notes, then what the figures are made of and what measuring cost."""
    said = "\n".join(wrapped(f"Note: {clean(one)}") for one in notes)
    return "\n\n".join(part for part in (said, footer_words(vitals)) if part)
