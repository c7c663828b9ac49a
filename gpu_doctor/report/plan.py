"""Shows the plan of a treatment: the waterfall of gains, dropped settings, the change as a diff, and manual work."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gpu_doctor.elements import FIGURES, MONO, MUTED, TABLE, TOGETHER, listed, section
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS, heading
from gpu_doctor.report.contract import PlanShown
from gpu_doctor.report.fix import fix_html, fix_shown
from gpu_doctor.svg import GREY, as_image, opened
from gpu_doctor.trials import Plan, Step

GAIN: Final = "#009E73"
LOST: Final = "#D55E00"
_BEFORE: Final = GREY
_LONG: Final = 40
"""Text next to a bar may wrap if it is longer than this many characters."""
_SHORT: Final = 28
"""A label stays on one line if it has at most this many characters."""


def plan_shown(plan: Plan) -> PlanShown:
    """Converts a plan to plain data for the page."""
    by_hand, notes = (tuple(dict.fromkeys(clean(line) for line in some)) for some in (plan.by_hand, plan.notes))
    return PlanShown(
        sentence=plan.sentence,
        steps=plan.steps,
        dropped=plan.dropped,
        notes=notes,
        by_hand=by_hand,
        settings=plan.settings,
        fix=fix_shown(plan.fix, plan.settings) if plan.settings else None,
    )


def plan_html(plan: Plan) -> str:
    """Renders the plan as a section of the static result, in HTML that survives notebook sanitizers."""
    shown = plan_shown(plan)
    body = f"<div><b>{heading(LABELS.treatment)}</b> &nbsp; {escape(shown.sentence)}</div>"
    body += bars([bar(step) for step in shown.steps])
    body += "".join(f"<div>{escape(note)}</div>" for note in shown.notes)
    if shown.dropped:
        dropped = listed(f"{change.label}: {change.why}" for change in shown.dropped)
        body += f'<div style="{MUTED}">{heading(LABELS.dropped)}{dropped}</div>'
    if shown.fix is not None:
        body += f'<div style="margin-top:6px"><b>{heading(LABELS.changed)}</b>{fix_html(shown.fix)}</div>'
    if shown.by_hand:
        body += f'<div style="margin-top:6px"><b>{heading(LABELS.by_hand)}</b>{listed(shown.by_hand)}</div>'
    return section(body)


def bars(rows: Sequence[str]) -> str:
    """Wraps rows made by `bar` in a table; '' if there are none."""
    if not rows:
        return ""
    style = f"{TABLE};font-size:13px;margin:6px 0;width:100%"
    return f'<table style="{style}"><tbody>{"".join(rows)}</tbody></table>'


def bar(step: Step) -> str:
    """Renders one step as a table row: its label, the bar, the total speed-up, and the gain in words."""
    cell = "padding:2px 12px 2px 0;border:none;background:transparent;vertical-align:middle;text-align"
    whole = f";{TOGETHER}" if len(step.label) <= _SHORT else ""
    picture = as_image(_bar_svg(step), "", "100%")  # no alternative text: the row has the figures
    style = f"{FIGURES};{TOGETHER}" if len(step.gain) <= _LONG else FIGURES
    losses = f'<td colspan="4" style="{cell}:left;{MUTED}">{escape(step.losses)}</td>' if step.losses else ""
    losses = losses and f'<tr style="background:transparent">{losses}</tr>'
    return (
        f'<tr style="background:transparent"><td style="{cell}:left;{MONO}{whole}">{escape(step.label)}</td>'
        f'<td style="{cell}:left;width:55%">{picture}</td>'
        f'<td style="{cell}:right;{FIGURES};{TOGETHER}"><b>{step.total}</b></td>'
        f'<td style="{cell}:left;{style};{MUTED}">{escape(step.gain)}</td></tr>{losses}'
    )


def _bar_svg(step: Step, width: int = 600, height: int = 16) -> str:
    """Draws a bar: the speed before the step pale, the gain of the step solid, a loss as a dashed outline."""
    before, added = step.before * width, step.added * width
    parts = [opened(width, height, " preserveAspectRatio='none'")]
    if before > 0:
        parts.append(f"<rect width='{before:.1f}' height='{height}' fill='{_BEFORE}' opacity='.35'/>")
    if added >= 0:
        colour = GAIN if before > 0 or step.whole else _BEFORE
        parts.append(f"<rect x='{before:.1f}' width='{max(added, 1.0):.1f}' height='{height}' fill='{colour}'/>")
    else:
        style = f"fill='none' stroke='{LOST}' stroke-dasharray='4 3'"
        parts.append(f"<rect x='{before:.1f}' y='1' width='{-added:.1f}' height='{height - 2}' {style}/>")
    return "".join(parts) + "</svg>"
