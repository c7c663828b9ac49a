"""The parts of the static HTML result that come from trials. Every function returns HTML with foreign text escaped.

`gpu_doctor.diagnosis.as_html` says what notebook sanitizers let through.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.words import RISK_MARK
from gpu_doctor.elements import FIGURES, LINE, MUTED, TABLE, TOGETHER, safe, section
from gpu_doctor.labels import PHASE_LABELS
from gpu_doctor.report.before_after import BeforeAfter, SideSummary
from gpu_doctor.report.contract import Result
from gpu_doctor.report.plan import GAIN
from gpu_doctor.report.runs import Row, columns
from gpu_doctor.svg import anatomy as anatomy_bar
from gpu_doctor.svg import as_image, spread_line
from gpu_doctor.trials.compare import Effect

_CELL: Final = "padding:3px 10px 3px 0;vertical-align:top"
_ROW: Final = f"background:transparent;border-bottom:{LINE}"


def result(found: Result | None) -> str:
    """Renders the proven result of the trials, which stands above the verdict; '' if there is none."""
    if found is None:
        return ""
    mark = f"{RISK_MARK} " if found.warns else ""
    more = f'<div style="{MUTED}">{mark}{safe(found.more)}</div>' if found.more else ""
    style = f"padding:10px 14px 10px 10px;border-top:{LINE};border-left:4px solid {GAIN}"
    return f'<div style="{style}"><div style="font-size:16px"><b>{safe(found.text)}</b></div>{more}</div>'


def compared(found: BeforeAfter | None) -> str:
    """Renders both sides of the newest trial on one time scale, with the spread of their steps; '' before any trial."""
    if found is None:
        return ""
    sides = "".join(_side(side, found) for side in found.sides)
    return section(f"<div>Before and after, {safe(found.of)}</div>{sides}")


def _side(side: SideSummary, found: BeforeAfter) -> str:
    phases = [f"{PHASE_LABELS[phase]} {formatting.seconds(took)}" for phase, _, took in side.phases]
    drawn = anatomy_bar({phase: share for phase, share, _ in side.phases}, length=side.step_s / found.scale_s)
    bar = as_image(drawn, f"{side.label}, {side.total}: {', '.join(phases)}", "100%")
    spread = as_image(spread_line(side.quantiles_s, found.scale_s), "", "100%") if side.spread else ""
    text = f'<div style="{MUTED};font-size:12px">{safe(side.spread)}</div>' if side.spread else ""
    return f'<div style="margin:4px 0"><div>{safe(side.label)} <b>{safe(side.total)}</b></div>{bar}{spread}{text}</div>'


def runs(table: Sequence[Row], on_gpu: bool, effects: Sequence[Effect]) -> str:
    """Renders the table of runs and trials, one row each."""
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
        # Text (settings, a refusal's reason) may wrap anywhere, a figure only before its bracket.
        if i != 1 and len(cell.text) <= 40:
            style = f"text-align:{'right' if i else 'left'};{FIGURES}"
            value, bracket, rest = text.partition(" (")
            aside = f' <span style="{TOGETHER};{MUTED}">({rest}</span>' if bracket else ""
            text = f'<span style="{TOGETHER}">{value}</span>{aside}'
        text = f"<b>{text}</b>" if cell.tone == "good" else text
        text += f'<div style="font-size:11px;{MUTED}">{escape(cell.small)}</div>' if cell.small else ""
        cells.append(f'<td style="{_CELL};{style}">{text}</td>')
    return "".join(cells)
