"""What a treatment arrived at, told: the waterfall of gains, what was not kept, the change as a diff, what is left."""

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
"""Of so many characters on, what is said beside a bar may break into lines."""
_SHORT: Final = 28
"""A label of so many characters stays on one line, beside its bar."""


def plan_shown(plan: Plan) -> PlanShown:
    """What there is to say of a plan."""
    by_hand, notes = (tuple(dict.fromkeys(clean(one) for one in some)) for some in (plan.by_hand, plan.notes))
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
    """The plan as a section of the static result; survives notebook sanitizers (see `gpu_doctor.report.as_html`)."""
    said = plan_shown(plan)
    body = f"<div><b>{heading(LABELS.treatment)}</b> &nbsp; {escape(said.sentence)}</div>"
    body += bars([bar(one) for one in said.steps])
    body += "".join(f"<div>{escape(one)}</div>" for one in said.notes)
    if said.dropped:
        dropped = listed(f"{one.label}: {one.why}" for one in said.dropped)
        body += f'<div style="{MUTED}">{heading(LABELS.dropped)}{dropped}</div>'
    if said.fix is not None:
        body += f'<div style="margin-top:6px"><b>{heading(LABELS.changed)}</b>{fix_html(said.fix)}</div>'
    if said.by_hand:
        body += f'<div style="margin-top:6px"><b>{heading(LABELS.by_hand)}</b>{listed(said.by_hand)}</div>'
    return section(body)


def bars(rows: Sequence[str]) -> str:
    """The table around rows of `bar`; '' without any."""
    if not rows:
        return ""
    style = f"{TABLE};font-size:13px;margin:6px 0;width:100%"
    return f'<table style="{style}"><tbody>{"".join(rows)}</tbody></table>'


def bar(one: Step) -> str:
    """One bar as a row of a table: its label, the bar, how fast in all, and what is said of it."""
    cell = "padding:2px 12px 2px 0;border:none;background:transparent;vertical-align:middle;text-align"
    whole = f";{TOGETHER}" if len(one.label) <= _SHORT else ""
    picture = as_image(_bar_svg(one), "", "100%")  # what it shows stands beside it
    said = f"{FIGURES};{TOGETHER}" if len(one.gain) <= _LONG else FIGURES
    losses = f'<td colspan="4" style="{cell}:left;{MUTED}">{escape(one.losses)}</td>' if one.losses else ""
    losses = losses and f'<tr style="background:transparent">{losses}</tr>'
    return (
        f'<tr style="background:transparent"><td style="{cell}:left;{MONO}{whole}">{escape(one.label)}</td>'
        f'<td style="{cell}:left;width:55%">{picture}</td>'
        f'<td style="{cell}:right;{FIGURES};{TOGETHER}"><b>{one.total}</b></td>'
        f'<td style="{cell}:left;{said};{MUTED}">{escape(one.gain)}</td></tr>{losses}'
    )


def _bar_svg(one: Step, width: int = 600, height: int = 16) -> str:
    """What was there before pale, what the step gave full (hatched where it lost)."""
    before, added = one.before * width, one.added * width
    parts = [opened(width, height, " preserveAspectRatio='none'")]
    if before > 0:
        parts.append(f"<rect width='{before:.1f}' height='{height}' fill='{_BEFORE}' opacity='.35'/>")
    if added >= 0:
        colour = GAIN if before > 0 or one.whole else _BEFORE
        parts.append(f"<rect x='{before:.1f}' width='{max(added, 1.0):.1f}' height='{height}' fill='{colour}'/>")
    else:
        style = f"fill='none' stroke='{LOST}' stroke-dasharray='4 3'"
        parts.append(f"<rect x='{before:.1f}' y='1' width='{-added:.1f}' height='{height - 2}' {style}/>")
    return "".join(parts) + "</svg>"
