"""What a treatment arrived at, told: the waterfall of gains, what was not kept, the change as a diff, what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final

from gpu_doctor import display, formatting
from gpu_doctor.formatting import clean
from gpu_doctor.recording import describe
from gpu_doctor.report.contract import Dropped, PlanShown, Step
from gpu_doctor.report.elements import FIGURES, MONO, MUTED, TABLE, TOGETHER, listed, section
from gpu_doctor.report.fix import fix_html, fix_shown
from gpu_doctor.report.labels import LABELS, heading
from gpu_doctor.report.svg import GREY, as_image, opened
from gpu_doctor.report.words import CLEAN
from gpu_doctor.trials import Plan, Rung
from gpu_doctor.trials.compare import AS_PASTED, BY_SETTINGS, Effect

GAIN: Final = "#009E73"
LOST: Final = "#D55E00"
_BEFORE: Final = GREY
_LONG: Final = 40
"""Of so many characters on, what is said beside a bar may break into lines."""
_SHORT: Final = 28
"""A label of so many characters stays on one line, beside its bar."""
_BAR: Final = 24
"""Characters of the longest bar in text."""


def plan_shown(plan: Plan) -> PlanShown:
    """What there is to say of a plan."""
    by_hand, notes = (tuple(dict.fromkeys(clean(one) for one in some)) for some in (plan.by_hand, plan.notes))
    return PlanShown(
        sentence=_sentence(plan),
        steps=_steps(plan.waterfall),
        dropped=_dropped(plan),
        notes=notes,
        by_hand=by_hand,
        settings=plan.settings,
        fix=fix_shown(plan.fix, plan.settings) if plan.settings else None,
    )


def _sentence(plan: Plan) -> str:
    if not plan.effects:
        return f"Nothing was tried: {clean(plan.reason) or 'no finding has a setting to try.'}"
    trials = formatting.count(len(plan.effects), "trial")
    if not plan.settings:
        return f"{trials} found no setting worth keeping: the code stays as written."
    how = {AS_PASTED: "verified by running the changed cell", BY_SETTINGS: "verified by settings"}
    verified = how.get(plan.verified, "measured step by step and not verified")
    last = plan.waterfall[-1] if plan.verified else None
    gain = formatting.figure(plan.speedup, last.low, last.high) if last is not None else formatting.factor(plan.speedup)
    return f"{gain} faster, {verified}, in {trials}: {clean(describe(plan.settings), 200)}."


def _steps(waterfall: Sequence[Rung]) -> tuple[Step, ...]:
    if len(waterfall) < 2:
        return ()
    longest = max(one.speedup for one in waterfall) or 1.0
    found, last = [], 0.0
    for number, one in enumerate(waterfall):
        label, whole = clean(one.label, 120), bool(number and one.verified)
        ends = formatting.interval(one.low, one.high, one.speedup if whole else None)
        interval = f" ({ends})" if ends else ""
        if whole:  # a measurement of all against the code as written, not a further gain
            total = formatting.figure(one.speedup, one.low, one.high)
            told = Step(label, total, f"verified{interval}", 0.0, one.speedup, True)
        elif number:
            gain = "" if one.gain is None else formatting.over(formatting.factor(one.gain)) + interval
            kept = min(last, one.speedup)
            told = Step(f"+ {label}", formatting.factor(one.speedup), gain, kept, one.speedup - last)
        else:
            told = Step(label, formatting.factor(one.speedup), "", 0.0, one.speedup)
        before, added = round(told.before / longest, 4), round(told.added / longest, 4)
        found.append(replace(told, before=before, added=added, losses=clean(one.losses, 300)))
        last = one.speedup
    return tuple(found)


def _dropped(plan: Plan) -> tuple[Dropped, ...]:
    """Trials that the plan did not keep: their settings are not those of a step of the waterfall."""
    stages: list[dict[str, Any]] = [{}]
    for rung in plan.waterfall:
        stages.append({**stages[-1], **rung.settings})
    found = []
    for effect in plan.effects:
        # Without workers a step also takes back what acts on workers: then it is known by its trial's own figures.
        gained = (effect.speedup, effect.low, effect.high) in [(one.gain, one.low, one.high) for one in plan.waterfall]
        if dict(effect.settings) in stages or (gained and effect.speedup is not None):
            continue
        turned = {name: value for name, value in effect.settings.items() if effect.baseline_settings.get(name) != value}
        found.append(Dropped(clean(describe(turned), 120), _why(effect)))
    return tuple(found)


def _why(effect: Effect) -> str:
    if effect.outcome not in CLEAN or effect.speedup is None:
        outcome = formatting.OUTCOME_LABELS.get(effect.outcome, effect.outcome)
        ended = outcome if effect.outcome not in CLEAN else "nothing was measured"
        return f"{ended}: {clean(effect.reason, 300)}" if effect.reason else ended
    measured = formatting.speedup(effect.speedup, effect.low, effect.high) + f" {effect.verdict_words}"
    if effect.loss_drift is not None and not math.isfinite(effect.loss_drift):
        return f"{measured}, but the loss becomes NaN or infinite"
    differs = f", but its {effect.loss_words}" if effect.verdict == "faster" and effect.loss_changed else ""
    return measured + differs + (f": {clean(effect.reason, 300)}" if effect.reason else "")


def plan_text(plan: Plan) -> str:
    """The plan for a terminal."""
    said = plan_shown(plan)
    lines = [f"Treatment: {said.sentence}"]
    wide = max((len(one.label) for one in said.steps), default=0)
    for one in said.steps:
        bar = "░" * round(_BAR * one.before) + "█" * round(_BAR * abs(one.added))
        lines.append(f"  {one.label:<{wide}}  {bar:<{_BAR}} {one.total:>6}  {one.gain}".rstrip())
        lines += [f"    {one.losses}"] if one.losses else []
    lines += [f"  {one}" for one in said.notes]
    lines += [f"  not kept: {one.label}, {one.why}" for one in said.dropped]
    change = str(plan.fix) if plan.settings else ""
    lines += [f"    {line}" for line in clean(change, 20_000).splitlines()]
    lines += [f"  by hand: {one}" for one in said.by_hand]
    return "\n".join(lines)


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


display.register(Plan, plan_text, plan_html)
