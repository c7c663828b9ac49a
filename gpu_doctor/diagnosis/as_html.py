"""A diagnosis as static HTML, section by section. Every function returns HTML whose foreign text is escaped.

Notebook sanitizers shape it: inline styles only (and only properties that JupyterLab keeps), tables, `<details>`, and
pictures as `<img>` with an SVG inside; no style element, script, inline SVG or data attribute. Where styles are
stripped as well, what remains still reads in the right order. Text takes the page's own colour, lines are see-through
grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gpu_doctor import formatting
from gpu_doctor.diagnosis.as_data import DiagnosisData
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription
from gpu_doctor.diagnosis.source_lines import body as line_bars
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.words import (
    FEW_NAMES,
    RISK_MARK,
    SAFETY_WORDS,
    accent,
    anatomy_rows,
    first_cure,
    first_step,
    first_words,
    leading_risk,
    machine_facts,
    predicted_words,
    price,
    run_facts,
    silences,
    verdict_words,
)
from gpu_doctor.diagnosis.words import footer as footer_words
from gpu_doctor.elements import LINE, MONO, MUTED, TOGETHER, details, folded, listed, safe, section
from gpu_doctor.formatting import clean
from gpu_doctor.labels import BOTTLENECK_LABELS, LABELS, PHASE_LABELS, heading
from gpu_doctor.recording import LineCost, Recording
from gpu_doctor.svg import anatomy as anatomy_bar
from gpu_doctor.svg import as_image, swatch

__all__ = ["anatomy", "findings", "footer", "header", "hints", "html", "silent", "source", "verdict", "whole"]


def html(found: DiagnosisData) -> str:
    """All of a diagnosis: one `<div class="gpu-doctor-static">`, readable on light and dark pages."""
    return whole(
        header(found.vitals),
        verdict(found),
        anatomy(found.vitals),
        findings(found),
        hints(found),
        source(found.vitals.source, found.vitals.lines),
        silent(found),
        footer(found.vitals, found.notes),
    )


def whole(*sections: str) -> str:
    """The outermost element, found by its class by the live view's script, around the sections that have content."""
    style = f"border:{LINE};border-radius:6px;max-width:1100px;font-size:13px;line-height:1.45;margin:4px 0"
    return f'<div class="gpu-doctor-static" style="{style}">{"".join(sections)}</div>'


def header(vitals: Vitals, recording: Recording | None = None, title: str = LABELS.product) -> str:
    """Who looked at what: the machine on the left, the run on the right."""
    name = "" if title in ("", LABELS.product) else f" {safe(title, 80)}"
    left = f"<b>{LABELS.product}</b>{name} &nbsp; " + _dotted(machine_facts(vitals.setup))
    right = _dotted(run_facts(vitals, recording))
    style = "padding:6px 14px;display:flex;flex-wrap:wrap;justify-content:space-between"
    return f'<div style="{style}"><div style="margin-right:16px">{left}</div><div>{right}</div></div>'


def verdict(found: DiagnosisData, price: float | None = None) -> str:
    """The verdict, and under it what to do first; with the price of an hour, what the loss costs."""
    kind = BOTTLENECK_LABELS.get(found.bottleneck, safe(found.bottleneck))
    leading = leading_risk(found)
    risk = f'<div style="margin-top:4px">{RISK_MARK} {safe(leading)}</div>' if leading else ""
    leads = first_cure(found)
    first = "" if leads is None else _prescription(leads[1], f"{first_words(leads[0])}: ")
    todo = f'<div style="margin-top:6px">{first}</div>' if first else ""
    return (
        f'<div style="padding:10px 14px 12px 10px;border-top:{LINE};border-left:4px solid {accent(found)}">'
        f'<div style="font-size:16px"><b>{escape(verdict_words(found, price))}</b></div>'
        f'<div style="{MUTED}">{kind}</div>{risk}{todo}</div>'
    )


def _prescription(one: Prescription, lead: str = "") -> str:
    said = " &middot; ".join(safe(part) for part in (predicted_words(one), SAFETY_WORDS[one.safety]) if part)
    changes = f'<div style="{MUTED}">{safe(one.changes)}</div>' if one.changes else ""
    style = f"{MONO};margin:4px 0 2px 0;padding:5px 8px;border:{LINE};border-radius:4px;overflow-x:auto"
    code = f'<pre style="{style};background:transparent">{safe(one.code, 4000)}</pre>' if one.code else ""
    return f"{lead}<b>{safe(one.text)}</b> <span>{said}</span>{changes}{code}"


def anatomy(vitals: Vitals, mark: float | None = None, limit: str = "") -> str:
    """The bar of a step, with every figure as text under it.

    Args:
        vitals: of the run.
        mark: where a line stands across the bar, 0..1; None = no line.
        limit: what is said of that line.
    """
    phases = anatomy_rows(vitals)
    if not phases:
        return ""
    said = [f"{PHASE_LABELS[p]} {formatting.seconds(s)} ({formatting.share(part)})" for p, part, s in phases]
    drawn = anatomy_bar({phase: part for phase, part, _ in phases}, mark=mark)
    bar = as_image(drawn, "Anatomy of a step: " + ", ".join(said), "100%")
    legend = "".join(
        f'<span style="display:inline-block;white-space:nowrap;margin-right:18px">{as_image(swatch(phase), "")} '
        f"{PHASE_LABELS[phase]} <b>{formatting.seconds(seconds)}</b> {formatting.share(part)}</span> "
        for phase, part, seconds in phases
    )
    head = f"{heading(LABELS.anatomy)}, <b>{formatting.seconds(vitals.host_step_s)}</b>"
    below = f"<div>{safe(limit)}</div>" if limit else ""
    return section(f'<div>{head}</div><div style="margin:4px 0">{bar}</div><div>{legend}</div>{below}')


def findings(found: DiagnosisData) -> str:
    """The findings, numbered; all but the first are folded."""
    return "".join(_finding(number, one, found) for number, one in enumerate(found.findings, 1))


def hints(found: DiagnosisData) -> str:
    """What nothing measured prices, folded."""
    return "".join(_finding(None, one, found) for one in found.hints)


def _finding(number: int | None, one: Finding, found: DiagnosisData) -> str:
    """A finding with its evidence and what to try, folded but for the first; what stands above is not said again."""
    first = first_step(found)
    written = (f"<b>{safe(p.text)}</b> (see above)" if p is first else _prescription(p) for p in one.prescriptions)
    tries = "".join(f'<div style="margin-top:6px">{each}</div>' for each in written)
    said = one.headline == found.verdict
    headline = "" if said else f' &nbsp;<span style="{MUTED}">{safe(one.headline)}</span>'
    cost = price(one, found.vitals)
    name = safe(one.rule, 80) if number is None else f"{number} {safe(one.rule, 80)}"
    head = f'<b>{name}</b> &nbsp;<span style="{TOGETHER}">{cost}</span>{headline}'
    risk = f'<div style="margin-top:4px"><b>{RISK_MARK} {safe(one.risk)}</b></div>' if one.risk else ""
    evidence = listed(clean(line, 1000) for line in one.evidence)
    return folded(head, risk + evidence + tries, opened=number == 1)


def source(text: str, lines: Sequence[LineCost]) -> str:
    """The cell's lines with a bar each for the time they take, and the dearest lines elsewhere."""
    bars = line_bars(text, lines)
    return folded("Where the time goes, line by line", bars) if bars else ""


def silent(found: DiagnosisData) -> str:
    """The rules that could not judge, by reason."""
    grouped = silences(found)
    if not grouped:
        return ""
    items = "".join(_silence(why, names) for why, names in grouped.items())
    return folded(heading(LABELS.not_judged), f'<div style="margin:4px 0 0 14px">{items}</div>')


def _silence(why: str, names: Sequence[str]) -> str:
    """One line; a long list of names is folded."""
    named = escape(", ".join(names))
    if len(names) <= FEW_NAMES:
        return f'<div>{escape(why)}: <span style="{MUTED}">{named}</span></div>'
    head = f"{escape(why)}: {formatting.count(len(names), 'cause')}"
    return details(head, f'<div style="margin-left:14px;{MUTED}">{named}</div>')


def footer(vitals: Vitals, notes: Iterable[str]) -> str:
    """What the figures are made of, what measuring cost, and the notes."""
    said = listed(clean(note, 1000) for note in notes)
    return section(escape(footer_words(vitals)) + said, f";{MUTED};font-size:12px")


def _dotted(facts: Sequence[str]) -> str:
    return " &middot; ".join(f"<span>{escape(fact)}</span>" for fact in facts)
