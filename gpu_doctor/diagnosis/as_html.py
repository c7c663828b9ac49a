"""Renders a diagnosis as static HTML, section by section. Text that comes from the user's code is escaped.

The HTML must pass the sanitizers of notebooks: it uses inline styles only (and only properties that JupyterLab keeps),
tables, `<details>`, and pictures as `<img>` with an SVG inside; it has no style element, script, inline SVG or data
attribute. If styles are stripped as well, the rest still reads in the right order. Text takes the page's own colour,
and lines are translucent grey.
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
    """Renders the whole diagnosis as one `<div class="gpu-doctor-static">`, readable on light and dark pages."""
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
    """Joins the sections in the outermost element, which the live view's script finds by its class."""
    style = f"border:{LINE};border-radius:6px;max-width:1100px;font-size:13px;line-height:1.45;margin:4px 0"
    return f'<div class="gpu-doctor-static" style="{style}">{"".join(sections)}</div>'


def header(vitals: Vitals, recording: Recording | None = None, title: str = LABELS.product) -> str:
    """Renders the header: the machine on the left, the run on the right."""
    name = "" if title in ("", LABELS.product) else f" {safe(title, 80)}"
    left = f"<b>{LABELS.product}</b>{name} &nbsp; " + _dotted(machine_facts(vitals.setup))
    right = _dotted(run_facts(vitals, recording))
    style = "padding:6px 14px;display:flex;flex-wrap:wrap;justify-content:space-between"
    return f'<div style="{style}"><div style="margin-right:16px">{left}</div><div>{right}</div></div>'


def verdict(found: DiagnosisData, price: float | None = None) -> str:
    """Renders the verdict and, under it, its risk and the first thing to try.

    Args:
        found: the diagnosis.
        price: price of an hour of this machine in dollars, to say what the loss costs; None = not known.
    """
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


def _prescription(cure: Prescription, lead: str = "") -> str:
    """Renders a prescription: its text after `lead`, its forecast and safety, what it changes, its code."""
    note = " &middot; ".join(safe(part) for part in (predicted_words(cure), SAFETY_WORDS[cure.safety]) if part)
    changes = f'<div style="{MUTED}">{safe(cure.changes)}</div>' if cure.changes else ""
    style = f"{MONO};margin:4px 0 2px 0;padding:5px 8px;border:{LINE};border-radius:4px;overflow-x:auto"
    code = f'<pre style="{style};background:transparent">{safe(cure.code, 4000)}</pre>' if cure.code else ""
    return f"{lead}<b>{safe(cure.text)}</b> <span>{note}</span>{changes}{code}"


def anatomy(vitals: Vitals, mark: float | None = None, limit: str = "") -> str:
    """Renders the bar of a step, with every figure as text under it.

    Args:
        vitals: vitals of the run.
        mark: position of a line across the bar, 0..1; None = no line.
        limit: sentence on that line, shown under the bar.
    """
    phases = anatomy_rows(vitals)
    if not phases:
        return ""
    labels = [f"{PHASE_LABELS[p]} {formatting.seconds(s)} ({formatting.share(part)})" for p, part, s in phases]
    drawn = anatomy_bar({phase: part for phase, part, _ in phases}, mark=mark)
    bar = as_image(drawn, "Anatomy of a step: " + ", ".join(labels), "100%")
    legend = "".join(
        f'<span style="display:inline-block;white-space:nowrap;margin-right:18px">{as_image(swatch(phase), "")} '
        f"{PHASE_LABELS[phase]} <b>{formatting.seconds(seconds)}</b> {formatting.share(part)}</span> "
        for phase, part, seconds in phases
    )
    head = f"{heading(LABELS.anatomy)}, <b>{formatting.seconds(vitals.host_step_s)}</b>"
    below = f"<div>{safe(limit)}</div>" if limit else ""
    return section(f'<div>{head}</div><div style="margin:4px 0">{bar}</div><div>{legend}</div>{below}')


def findings(found: DiagnosisData) -> str:
    """Renders the findings, numbered; all but the first are folded."""
    return "".join(_finding(number, finding, found) for number, finding in enumerate(found.findings, 1))


def hints(found: DiagnosisData) -> str:
    """Renders the findings without a price, folded."""
    return "".join(_finding(None, hint, found) for hint in found.hints)


def _finding(number: int | None, finding: Finding, found: DiagnosisData) -> str:
    """Renders a finding with its evidence and what to try; all but number 1 are folded.

    The headline is left out if it is the verdict, and the first thing to try if the verdict's section shows it.
    """
    first = first_step(found)
    written = (f"<b>{safe(p.text)}</b> (see above)" if p is first else _prescription(p) for p in finding.prescriptions)
    tries = "".join(f'<div style="margin-top:6px">{cure}</div>' for cure in written)
    is_verdict = finding.headline == found.verdict
    headline = "" if is_verdict else f' &nbsp;<span style="{MUTED}">{safe(finding.headline)}</span>'
    cost = price(finding, found.vitals)
    name = safe(finding.rule, 80) if number is None else f"{number} {safe(finding.rule, 80)}"
    head = f'<b>{name}</b> &nbsp;<span style="{TOGETHER}">{cost}</span>{headline}'
    risk = f'<div style="margin-top:4px"><b>{RISK_MARK} {safe(finding.risk)}</b></div>' if finding.risk else ""
    evidence = listed(clean(line, 1000) for line in finding.evidence)
    return folded(head, risk + evidence + tries, opened=number == 1)


def source(text: str, lines: Sequence[LineCost]) -> str:
    """Renders the cell's source with a bar for each line's time, and the costliest lines of other files; folded."""
    bars = line_bars(text, lines)
    return folded("Where the time goes, line by line", bars) if bars else ""


def silent(found: DiagnosisData) -> str:
    """Renders the causes that could not be judged, by reason; folded."""
    grouped = silences(found)
    if not grouped:
        return ""
    items = "".join(_silence(why, names) for why, names in grouped.items())
    return folded(heading(LABELS.not_judged), f'<div style="margin:4px 0 0 14px">{items}</div>')


def _silence(why: str, names: Sequence[str]) -> str:
    """Renders one reason with the names of its causes; a long list of names is folded."""
    named = escape(", ".join(names))
    if len(names) <= FEW_NAMES:
        return f'<div>{escape(why)}: <span style="{MUTED}">{named}</span></div>'
    head = f"{escape(why)}: {formatting.count(len(names), 'cause')}"
    return details(head, f'<div style="margin-left:14px;{MUTED}">{named}</div>')


def footer(vitals: Vitals, notes: Iterable[str]) -> str:
    """Renders how many steps were measured, what measuring cost, and the notes."""
    written = listed(clean(note, 1000) for note in notes)
    return section(escape(footer_words(vitals)) + written, f";{MUTED};font-size:12px")


def _dotted(facts: Sequence[str]) -> str:
    """Joins facts with dots between them."""
    return " &middot; ".join(f"<span>{escape(fact)}</span>" for fact in facts)
