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

from gpu_doctor import wording
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.drawing import PHASE_COLOURS, as_image, swatch
from gpu_doctor.drawing import anatomy as anatomy_bar
from gpu_doctor.recording import LineCost, Recording
from gpu_doctor.report_facts import (
    COLUMNS,
    SAFETY_WORDS,
    Row,
    anatomy_rows,
    machine_facts,
    predicted_words,
    run_facts,
    verdict_words,
)
from gpu_doctor.report_facts import footer as footer_words
from gpu_doctor.report_plots import plots as plots
from gpu_doctor.rules.rule import Finding, Prescription
from gpu_doctor.vitals import Vitals
from gpu_doctor.wording import BOTTLENECK_LABELS, PHASE_LABELS, clean

BOTTLENECK_COLOURS: Final = {
    "input": PHASE_COLOURS["data_wait"],
    "transfer": PHASE_COLOURS["transfer"],
    "host": PHASE_COLOURS["other"],
    "compute": PHASE_COLOURS["evaluation"],
    "memory": PHASE_COLOURS["optimizer"],
    "communication": PHASE_COLOURS["sync"],
}
MOST_SOURCE_LINES: Final = 200
_LINE: Final = "1px solid rgba(128,128,128,0.35)"
_MUTED: Final = "opacity:0.72"
_MONO: Final = "font-family:monospace;font-size:12px"
_FIGURES: Final = "font-variant-numeric:tabular-nums"
_TOGETHER: Final = "white-space:nowrap"
_CELL: Final = f"padding:3px 10px 3px 0;border-bottom:{_LINE};vertical-align:top;background:transparent"
_SECTION: Final = f"padding:8px 14px;border-top:{_LINE}"


def safe(text: object, most: int = 1000) -> str:
    """Foreign text, cleaned and escaped for HTML."""
    return escape(clean(text, most))


def whole(*sections: str) -> str:
    """The outermost element, found by its class by the live view's script, around the sections that have content."""
    style = f"border:{_LINE};border-radius:6px;max-width:1100px;font-size:13px;line-height:1.45;margin:4px 0"
    return f'<div class="gpu-doctor-static" style="{style}">{"".join(sections)}</div>'


def header(diagnosis: Diagnosis, recording: Recording | None, title: str) -> str:
    """Who looked at what: the machine on the left, the run on the right."""
    name = "" if title in ("", "GPU Doctor") else f" {safe(title, 80)}"
    left = f"<b>GPU Doctor</b>{name} &nbsp; " + _dotted(machine_facts(diagnosis.vitals.setup))
    right = _dotted(run_facts(diagnosis.vitals, recording))
    style = "padding:6px 14px;display:flex;flex-wrap:wrap;justify-content:space-between"
    return f'<div style="{style}"><div style="margin-right:16px">{left}</div><div>{right}</div></div>'


def verdict(diagnosis: Diagnosis) -> str:
    """The verdict, and under it what to do first."""
    colour = BOTTLENECK_COLOURS.get(diagnosis.bottleneck, PHASE_COLOURS["other"])
    kind = BOTTLENECK_LABELS.get(diagnosis.bottleneck, safe(diagnosis.bottleneck))
    first = next((p for finding in diagnosis.findings for p in finding.prescriptions), None)
    todo = f'<div style="margin-top:6px">{_prescription(first, "Try: ")}</div>' if first is not None else ""
    return (
        f'<div style="padding:10px 14px 12px 10px;border-top:{_LINE};border-left:4px solid {colour}">'
        f'<div style="font-size:16px;font-weight:600">{escape(verdict_words(diagnosis))}</div>'
        f'<div style="{_MUTED}">{kind}</div>{todo}</div>'
    )


def _prescription(one: Prescription, lead: str = "") -> str:
    said = " &middot; ".join(safe(part) for part in (predicted_words(one), SAFETY_WORDS[one.safety]) if part)
    changes = f'<div style="{_MUTED}">{safe(one.changes)}</div>' if one.changes else ""
    style = f"{_MONO};margin:4px 0 2px 0;padding:5px 8px;border:{_LINE};border-radius:4px;overflow-x:auto"
    code = f'<pre style="{style};background:transparent">{safe(one.code, 4000)}</pre>' if one.code else ""
    return f"{lead}<b>{safe(one.text)}</b> <span>{said}</span>{changes}{code}"


def anatomy(vitals: Vitals) -> str:
    """The bar of a step, with every figure as text under it."""
    phases = anatomy_rows(vitals)
    if not phases:
        return ""
    said = [f"{PHASE_LABELS[p]} {wording.seconds(s)} ({wording.share(part)})" for p, part, s in phases]
    bar = as_image(
        anatomy_bar({phase: part for phase, part, _ in phases}), "Anatomy of a step: " + ", ".join(said), "100%"
    )
    legend = "".join(
        f'<span style="display:inline-block;white-space:nowrap;margin-right:18px">{as_image(swatch(phase), "")} '
        f"{PHASE_LABELS[phase]} <b>{wording.seconds(seconds)}</b> {wording.share(part)}</span> "
        for phase, part, seconds in phases
    )
    head = f"Anatomy of a step, <b>{wording.seconds(vitals.step_wall_s)}</b>"
    return f'<div style="{_SECTION}"><div>{head}</div><div style="margin:4px 0">{bar}</div><div>{legend}</div></div>'


def runs(table: Sequence[Row]) -> str:
    """The runs and trials, one row each."""
    style = f"{_CELL};{_MUTED};font-weight:normal;white-space:nowrap;text-align"
    head = "".join(f'<th style="{style}:{"right" if i > 1 else "left"}">{name}</th>' for i, name in enumerate(COLUMNS))
    body = "".join(f'<tr style="background:transparent">{_cells(row)}</tr>' for row in table)
    # JupyterLab's own style makes all columns of a table equally wide; they would run into each other.
    style = "border-collapse:collapse;table-layout:auto;width:100%;font-size:13px;border:none;margin:0"
    return (
        f'<div style="{_SECTION};overflow-x:auto"><table style="{style}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(row: Row) -> str:
    cells = []
    for i, cell in enumerate(row.cells):
        text, style = escape(cell), "text-align:left"
        # Words (settings, why a trial was refused) may wrap anywhere, a figure only before its bracket.
        if i != 1 and len(cell) <= 40:
            style = f"text-align:{'right' if i else 'left'};{_FIGURES}"
            value, bracket, rest = text.partition(" (")
            aside = f' <span style="{_TOGETHER};{_MUTED}">({rest}</span>' if bracket else ""
            text = f'<span style="{_TOGETHER}">{value}</span>{aside}'
        text = f"<b>{text}</b>" if row.kept and i == 3 else text
        cells.append(f'<td style="{_CELL};{style}">{text}</td>')
    return "".join(cells)


def finding(number: int, one: Finding, verdict: str = "") -> str:
    """A finding with its evidence and what to try, folded but for the first; `verdict` is not said again."""
    evidence = "".join(f"<li>{safe(line)}</li>" for line in one.evidence)
    tries = "".join(f'<div style="margin-top:6px">{_prescription(p)}</div>' for p in one.prescriptions)
    headline = "" if one.headline == verdict else f' &nbsp;<span style="{_MUTED}">{safe(one.headline)}</span>'
    head = f"<b>{number} {safe(one.rule, 80)}</b> &nbsp;{wording.share(one.cost_share)}{headline}"
    facts = f'<ul style="margin:4px 0 4px 0;padding-left:20px">{evidence}</ul>' if evidence else ""
    return _folded(head, facts + tries, opened=number == 1)


def source(text: str, lines: Sequence[LineCost]) -> str:
    """The cell's lines with a bar each for the time they take, and the dearest lines elsewhere."""
    own = clean(text, 40_000).rstrip().split("\n")
    shares: dict[int, list[LineCost]] = {}
    elsewhere = []
    for one in (one for one in lines if not one.in_worker):  # a worker's line has a share of another whole
        if 0 < one.line <= len(own) and one.text and own[one.line - 1].strip() == clean(one.text).strip():
            shares.setdefault(one.line, []).append(one)
        elif one.share >= 0.01:
            elsewhere.append(one)
    if not shares and not elsewhere:
        return ""
    body = "".join(_source_line(n, own[n - 1], shares.get(n, ())) for n in range(1, len(own) + 1)[:MOST_SOURCE_LINES])
    cut = f"<div>... {len(own) - MOST_SOURCE_LINES} more lines</div>" if len(own) > MOST_SOURCE_LINES else ""
    style = f"border-collapse:collapse;table-layout:auto;border:none;margin:4px 0;{_MONO}"
    table = f'<table style="{style}">{body}</table>{cut}'
    others = "".join(
        f"<li>{wording.share(one.share)} {safe(one.file.rsplit('/', 1)[-1], 80)}:{one.line} {safe(one.function, 80)}: "
        f'<span style="{_MONO}">{safe(one.text, 200)}</span></li>'
        for one in elsewhere[:8]
    )
    rest = f'<div>Elsewhere</div><ul style="margin:2px 0;padding-left:20px">{others}</ul>' if others else ""
    return _folded("Where the time goes, line by line", (table if shares else "") + rest)


def _source_line(number: int, text: str, costs: Sequence[LineCost]) -> str:
    total = sum(one.share for one in costs)
    bar, figure = "", ""
    if total >= 0.005:
        phase = max(costs, key=lambda one: one.share).phase
        colour = PHASE_COLOURS.get(phase, PHASE_COLOURS["other"])
        blocks = "█" * min(round(total * 16), 16) or "▏"
        name = PHASE_LABELS.get(phase, PHASE_LABELS["other"])
        bar = f'<span style="color:{colour}">{blocks}</span> <span style="{_MUTED}">{name}</span>'
        figure = wording.share(total)
    pad = "padding:0 10px 0 0;white-space:nowrap;border:none;background:transparent"
    return (
        f'<tr style="background:transparent"><td style="{pad};text-align:right;{_MUTED}">{number}</td>'
        f'<td style="{pad};text-align:right">{figure}</td><td style="{pad};text-align:left">{bar}</td>'
        f'<td style="{pad};text-align:left;white-space:pre">{safe(text, 200)}</td></tr>'
    )


def silent(grouped: Mapping[str, Sequence[str]]) -> str:
    """The rules that could not judge, by reason."""
    if not grouped:
        return ""
    items = "".join(f"<li>{escape(why)}: {escape(', '.join(names))}</li>" for why, names in grouped.items())
    number = wording.count(sum(len(names) for names in grouped.values()), "rule")
    return _folded(f"Not judged: {number}", f'<ul style="margin:4px 0;padding-left:20px">{items}</ul>')


def footer(diagnosis: Diagnosis, notes: Sequence[str]) -> str:
    """What the figures are made of, what measuring cost, and the notes."""
    items = "".join(f"<li>{safe(note)}</li>" for note in notes)
    said = f'<ul style="margin:4px 0 0 0;padding-left:20px">{items}</ul>' if items else ""
    return f'<div style="{_SECTION};{_MUTED};font-size:12px">{escape(footer_words(diagnosis.vitals))}{said}</div>'


def _folded(head: str, body: str, opened: bool = False) -> str:
    state = " open" if opened else ""
    return f'<div style="{_SECTION}"><details{state}><summary>{head}</summary><div>{body}</div></details></div>'


def _dotted(facts: Sequence[str]) -> str:
    return " &middot; ".join(f"<span>{escape(fact)}</span>" for fact in facts)
