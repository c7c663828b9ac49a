"""The pieces of the static HTML result. Every function returns HTML whose foreign text is escaped.

Notebook sanitizers shape it: inline styles only (and only properties that JupyterLab keeps), tables, `<details>`, and
pictures as `<img>` with an SVG inside; no style element, script, inline SVG or data attribute. Where styles are
stripped as well, what remains still reads in the right order. Text takes the page's own colour, lines are see-through
grey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Diagnosis, Finding, Prescription, Vitals
from gpu_doctor.formatting import BOTTLENECK_LABELS, PHASE_LABELS, clean
from gpu_doctor.recording import LineCost, Recording
from gpu_doctor.report.before_after import BeforeAfter, OneSide
from gpu_doctor.report.contract import Ceiling, Result
from gpu_doctor.report.elements import FIGURES, LINE, MONO, MUTED, TABLE, TOGETHER, details, folded, listed, section
from gpu_doctor.report.labels import LABELS, heading
from gpu_doctor.report.plan import GAIN
from gpu_doctor.report.plots import plots as plots
from gpu_doctor.report.runs import Row, columns
from gpu_doctor.report.source_lines import body as line_bars
from gpu_doctor.report.svg import anatomy as anatomy_bar
from gpu_doctor.report.svg import as_image, swatch
from gpu_doctor.report.svg import spread as spread_line
from gpu_doctor.report.words import (
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
    verdict_words,
)
from gpu_doctor.report.words import footer as footer_words
from gpu_doctor.trials.compare import Effect

_CELL: Final = "padding:3px 10px 3px 0;vertical-align:top"
_ROW: Final = f"background:transparent;border-bottom:{LINE}"


def safe(text: object, most: int = 1000) -> str:
    """Foreign text, cleaned and escaped for HTML."""
    return escape(clean(text, most))


def whole(*sections: str) -> str:
    """The outermost element, found by its class by the live view's script, around the sections that have content."""
    style = f"border:{LINE};border-radius:6px;max-width:1100px;font-size:13px;line-height:1.45;margin:4px 0"
    return f'<div class="gpu-doctor-static" style="{style}">{"".join(sections)}</div>'


def header(diagnosis: Diagnosis, recording: Recording | None, title: str) -> str:
    """Who looked at what: the machine on the left, the run on the right."""
    name = "" if title in ("", LABELS.product) else f" {safe(title, 80)}"
    left = f"<b>{LABELS.product}</b>{name} &nbsp; " + _dotted(machine_facts(diagnosis.vitals.setup))
    right = _dotted(run_facts(diagnosis.vitals, recording))
    style = "padding:6px 14px;display:flex;flex-wrap:wrap;justify-content:space-between"
    return f'<div style="{style}"><div style="margin-right:16px">{left}</div><div>{right}</div></div>'


def result(found: Result | None) -> str:
    """What the trials proved, above the verdict; '' where nothing is."""
    if found is None:
        return ""
    mark = f"{RISK_MARK} " if found.warns else ""
    more = f'<div style="{MUTED}">{mark}{safe(found.more)}</div>' if found.more else ""
    style = f"padding:10px 14px 10px 10px;border-top:{LINE};border-left:4px solid {GAIN}"
    return f'<div style="{style}"><div style="font-size:16px"><b>{safe(found.text)}</b></div>{more}</div>'


def verdict(diagnosis: Diagnosis, price: float | None = None) -> str:
    """The verdict, and under it what to do first."""
    kind = BOTTLENECK_LABELS.get(diagnosis.bottleneck, safe(diagnosis.bottleneck))
    leading = leading_risk(diagnosis)
    risk = f'<div style="margin-top:4px">{RISK_MARK} {safe(leading)}</div>' if leading else ""
    found = first_cure(diagnosis)
    first = "" if found is None else _prescription(found[1], f"{first_words(found[0])}: ")
    todo = f'<div style="margin-top:6px">{first}</div>' if first else ""
    return (
        f'<div style="padding:10px 14px 12px 10px;border-top:{LINE};border-left:4px solid {accent(diagnosis)}">'
        f'<div style="font-size:16px"><b>{escape(verdict_words(diagnosis, price))}</b></div>'
        f'<div style="{MUTED}">{kind}</div>{risk}{todo}</div>'
    )


def _prescription(one: Prescription, lead: str = "") -> str:
    said = " &middot; ".join(safe(part) for part in (predicted_words(one), SAFETY_WORDS[one.safety]) if part)
    changes = f'<div style="{MUTED}">{safe(one.changes)}</div>' if one.changes else ""
    style = f"{MONO};margin:4px 0 2px 0;padding:5px 8px;border:{LINE};border-radius:4px;overflow-x:auto"
    code = f'<pre style="{style};background:transparent">{safe(one.code, 4000)}</pre>' if one.code else ""
    return f"{lead}<b>{safe(one.text)}</b> <span>{said}</span>{changes}{code}"


def anatomy(vitals: Vitals, bound: Ceiling | None = None) -> str:
    """The bar of a step, with every figure as text under it, and a mark at the measured ceiling."""
    phases = anatomy_rows(vitals)
    if not phases:
        return ""
    said = [f"{PHASE_LABELS[p]} {formatting.seconds(s)} ({formatting.share(part)})" for p, part, s in phases]
    drawn = anatomy_bar({phase: part for phase, part, _ in phases}, mark=None if bound is None else bound.share)
    bar = as_image(drawn, "Anatomy of a step: " + ", ".join(said), "100%")
    legend = "".join(
        f'<span style="display:inline-block;white-space:nowrap;margin-right:18px">{as_image(swatch(phase), "")} '
        f"{PHASE_LABELS[phase]} <b>{formatting.seconds(seconds)}</b> {formatting.share(part)}</span> "
        for phase, part, seconds in phases
    )
    head = f"{heading(LABELS.anatomy)}, <b>{formatting.seconds(vitals.host_step_s)}</b>"
    limit = "" if bound is None else f"<div>{safe(bound.text)}</div>"
    return section(f'<div>{head}</div><div style="margin:4px 0">{bar}</div><div>{legend}</div>{limit}')


def compared(found: BeforeAfter | None) -> str:
    """Both sides of the newest trial to one time scale, with how their steps spread; '' before any trial."""
    if found is None:
        return ""
    sides = "".join(_side(one, found) for one in found.sides)
    return section(f"<div>Before and after, {safe(found.of)}</div>{sides}")


def _side(one: OneSide, found: BeforeAfter) -> str:
    said = [f"{PHASE_LABELS[phase]} {formatting.seconds(took)}" for phase, _, took in one.phases]
    drawn = anatomy_bar({phase: share for phase, share, _ in one.phases}, length=one.step_s / found.scale_s)
    bar = as_image(drawn, f"{one.label}, {one.total}: {', '.join(said)}", "100%")
    spread = as_image(spread_line(one.quantiles_s, found.scale_s), "", "100%") if one.spread else ""
    words = f'<div style="{MUTED};font-size:12px">{safe(one.spread)}</div>' if one.spread else ""
    return f'<div style="margin:4px 0"><div>{safe(one.label)} <b>{safe(one.total)}</b></div>{bar}{spread}{words}</div>'


def runs(table: Sequence[Row], on_gpu: bool, effects: Sequence[Effect]) -> str:
    """The runs and trials, one row each."""
    names = columns(on_gpu, effects)
    style = f"{_CELL};{MUTED};font-weight:normal;white-space:nowrap;text-align"
    head = "".join(f'<th style="{style}:{"right" if i > 1 else "left"}">{name}</th>' for i, name in enumerate(names))
    body = "".join(f'<tr style="{_ROW}">{_cells(row)}</tr>' for row in table)
    style = f"{TABLE};width:100%;font-size:13px;margin:0"
    drawn = f'<table style="{style}"><thead><tr style="{_ROW}">{head}</tr></thead><tbody>{body}</tbody></table>'
    return section(drawn, ";overflow-x:auto")


def _cells(row: Row) -> str:
    cells = []
    for i, cell in enumerate(row.cells):
        text, style = escape(cell.text), "text-align:left"
        # Words (settings, why a trial was refused) may wrap anywhere, a figure only before its bracket.
        if i != 1 and len(cell.text) <= 40:
            style = f"text-align:{'right' if i else 'left'};{FIGURES}"
            value, bracket, rest = text.partition(" (")
            aside = f' <span style="{TOGETHER};{MUTED}">({rest}</span>' if bracket else ""
            text = f'<span style="{TOGETHER}">{value}</span>{aside}'
        text = f"<b>{text}</b>" if cell.tone == "good" else text
        text += f'<div style="font-size:11px;{MUTED}">{escape(cell.small)}</div>' if cell.small else ""
        cells.append(f'<td style="{_CELL};{style}">{text}</td>')
    return "".join(cells)


def finding(number: int | None, one: Finding, diagnosis: Diagnosis) -> str:
    """A finding with its evidence and what to try, folded but for the first; what stands above is not said again."""
    first = first_step(diagnosis)
    written = (f"<b>{safe(p.text)}</b> (see above)" if p is first else _prescription(p) for p in one.prescriptions)
    tries = "".join(f'<div style="margin-top:6px">{each}</div>' for each in written)
    said = one.headline == diagnosis.verdict
    headline = "" if said else f' &nbsp;<span style="{MUTED}">{safe(one.headline)}</span>'
    cost = price(one, diagnosis.vitals)
    name = safe(one.rule, 80) if number is None else f"{number} {safe(one.rule, 80)}"
    head = f'<b>{name}</b> &nbsp;<span style="{TOGETHER}">{cost}</span>{headline}'
    risk = f'<div style="margin-top:4px"><b>{RISK_MARK} {safe(one.risk)}</b></div>' if one.risk else ""
    evidence = listed(clean(line, 1000) for line in one.evidence)
    return folded(head, risk + evidence + tries, opened=number == 1)


def source(text: str, lines: Sequence[LineCost]) -> str:
    """The cell's lines with a bar each for the time they take, and the dearest lines elsewhere."""
    found = line_bars(text, lines)
    return folded("Where the time goes, line by line", found) if found else ""


def silent(grouped: Mapping[str, Sequence[str]]) -> str:
    """The rules that could not judge, by reason."""
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


def footer(diagnosis: Diagnosis, notes: Sequence[str]) -> str:
    """What the figures are made of, what measuring cost, and the notes."""
    said = listed(clean(note, 1000) for note in notes)
    return section(escape(footer_words(diagnosis.vitals)) + said, f";{MUTED};font-size:12px")


def _dotted(facts: Sequence[str]) -> str:
    return " &middot; ".join(f"<span>{escape(fact)}</span>" for fact in facts)
