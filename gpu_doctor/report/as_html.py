"""What trials add to the static HTML result. Every function returns HTML whose foreign text is escaped.

What notebook sanitizers let through is said in `gpu_doctor.diagnosis.as_html`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.words import RISK_MARK
from gpu_doctor.elements import FIGURES, LINE, MUTED, TABLE, TOGETHER, safe, section
from gpu_doctor.labels import PHASE_LABELS
from gpu_doctor.report.before_after import BeforeAfter, OneSide
from gpu_doctor.report.contract import Result
from gpu_doctor.report.plan import GAIN
from gpu_doctor.report.runs import Row, columns
from gpu_doctor.svg import anatomy as anatomy_bar
from gpu_doctor.svg import as_image
from gpu_doctor.svg import spread as spread_line
from gpu_doctor.trials.compare import Effect

_CELL: Final = "padding:3px 10px 3px 0;vertical-align:top"
_ROW: Final = f"background:transparent;border-bottom:{LINE}"


def result(found: Result | None) -> str:
    """What the trials proved, above the verdict; '' where nothing is."""
    if found is None:
        return ""
    mark = f"{RISK_MARK} " if found.warns else ""
    more = f'<div style="{MUTED}">{mark}{safe(found.more)}</div>' if found.more else ""
    style = f"padding:10px 14px 10px 10px;border-top:{LINE};border-left:4px solid {GAIN}"
    return f'<div style="{style}"><div style="font-size:16px"><b>{safe(found.text)}</b></div>{more}</div>'


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
