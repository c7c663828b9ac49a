"""The clinic's bars, and its table: one line a patient, then the totals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tests.support.clinic.physician import Visit

RULE_BAR = 0.95
NEAR = 0.20
NEAR_BAR = 0.90
MEDIAN_BAR = 0.10
"""Bars: class right in all; top rule right in 95 %; predicted gain within 20 % in 90 %, median error 10 %."""
INSIDE_BAR = 0.90
WIDTH_BAR = 1.6
"""Bars of the told ends: the true gain lies between them in 90 %, and the median of high over low is 1.6 at most."""
BUSY_PCT = 25.0
"""From here on other programs took part in the timing: the line says so."""

HEAD = (
    f"{'patient':32} {'class':14} {'first finding':30} {'cost':>5} {'1-1/g':>5} "
    f"{'pred':>5} {'real':>5} {'err':>6} {'told':>11} {'ms/step':>8} {'others':>6}  "
)


def line(visit: Visit) -> str:
    """One patient in one line."""
    if visit.absent:
        return f"{visit.name:32} not examined: {visit.absent}"
    if visit.error:
        return f"{visit.name:32} FAILED: {visit.error}"
    klass = visit.told_class if visit.class_right else f"{visit.told_class}!={visit.klass}"
    rule, cost = visit.findings[0] if visit.findings else ("-", None)
    share = None if visit.real is None else 1.0 - 1.0 / visit.real
    error = visit.error_share
    figures = (
        f"{_share(cost)} {_share(share)} {_gain(visit.predicted)} {_gain(visit.real)} "
        f"{'' if error is None else f'{100 * error:+.0f} %':>6} {_ends(visit):>11} "
        f"{visit.sick_ms or visit.watched_ms or 0.0:8.2f} {visit.others_pct:4.0f} %"
    )
    return f"{visit.name:32} {klass:14} {rule:30} {figures}  {_remarks(visit)}"


def _remarks(visit: Visit) -> str:
    said = []
    if not visit.class_right:
        said.append("CLASS")
    if not visit.rule_right:
        found = ", ".join(f"{rule} {100 * cost:.0f} %" for rule, cost in visit.findings) or "nothing"
        wanted = "nothing of 10 %" if visit.healthy else " or ".join(visit.wanted)
        said.append(f"RULE (wanted {wanted}; found {found})")
    said.extend(visit.broken)
    if visit.error_share is not None and abs(visit.error_share) > NEAR:
        said.append(f"GAIN ({', '.join(f'{one:.2f}' for one in visit.real_all)})")
    if not _inside(visit):
        said.append("BAND")
    if visit.trial is not None:
        said.append(f"a trial gave {visit.trial:.2f}")
    if visit.others_pct >= BUSY_PCT:
        said.append("busy machine")
    return "; ".join(said)


def _ends(visit: Visit) -> str:
    return f"{visit.told[0]:.2f}-{visit.told[1]:.2f}" if visit.told else ""


def _inside(visit: Visit) -> bool:
    """Whether the true gain lies between the told ends; nothing is wrong where none were told."""
    return visit.told is None or visit.real is None or visit.told[0] <= visit.real <= visit.told[1]


def _share(value: float | None) -> str:
    return f"{'':5}" if value is None else f"{value:5.2f}"


def _gain(value: float | None) -> str:
    return f"{'':5}" if value is None else f"{value:5.2f}"


def totals(visits: Sequence[Visit]) -> str:
    """The bars and what was reached, a line each."""
    seen = [one for one in visits if not (one.error or one.absent)]
    absent = [one.name for one in visits if one.absent]
    sick, well = [one for one in seen if not one.healthy], [one for one in seen if one.healthy]
    errors = [abs(one.error_share) for one in seen if one.error_share is not None]
    near = sum(one <= NEAR for one in errors)
    failed, took = sum(bool(one.error) for one in visits), sum(one.seconds for one in visits)
    lines = [
        f"{len(visits)} patients, {failed} failed to run, {took:.0f} s",
        f"class right      {_of(sum(one.class_right for one in seen), len(seen))}   bar: all",
        f"top rule right   {_of(sum(one.rule_right for one in sick), len(sick))}   bar: {RULE_BAR:.0%}",
        f"healthy left be  {_of(sum(one.rule_right for one in well), len(well))}   bar: all",
        f"gain within 20 % {_of(near, len(errors))}   bar: {NEAR_BAR:.0%}",
    ]
    if errors:
        lines.append(f"median error     {100 * statistics.median(errors):.0f} %   bar: {100 * MEDIAN_BAR:.0f} %")
    lines += _of_forecasts(seen)
    if absent:
        lines.append(f"not examined, for this machine cannot be made as theirs: {', '.join(absent)}")
    busy = sum(one.others_pct >= BUSY_PCT for one in seen if one.real is not None)
    if busy:
        lines.append(f"{busy} gains were timed while other programs used {BUSY_PCT:.0f} % of the cores or more: these")
        lines.append(
            "figures, and what was predicted from such a run, are of a busy machine; run again on a quiet one."
        )
    return "\n".join(lines)


def _of_forecasts(visits: Sequence[Visit]) -> list[str]:
    """How the told ends did, and the forecasts beside trials."""
    told = [one for one in visits if one.told is not None]
    lines = []
    if told:
        widths = [high / max(low, 1e-9) for low, high in (one.told for one in told if one.told is not None)]
        inside = _of(sum(_inside(one) for one in told), len(told))
        lines.append(f"gain inside band {inside}   bar: {INSIDE_BAR:.0%}")
        lines.append(f"median high/low  {statistics.median(widths):.2f}   bar: {WIDTH_BAR:g}")
    trials = [abs(one.trial_error_share) for one in visits if one.trial_error_share is not None]
    if trials:
        near = _of(sum(one <= NEAR for one in trials), len(trials))
        lines.append(f"of trials 20 %   {near}   bar: {NEAR_BAR:.0%}")
    return lines


def _of(count: int, whole: int) -> str:
    return f"{count} of {whole} ({100 * count / whole:.0f} %)" if whole else "none"


def passed(visits: Sequence[Visit]) -> bool:
    """Whether every bar is reached."""
    if any(one.error for one in visits):
        return False
    visits = [one for one in visits if not one.absent]
    sick, well = [one for one in visits if not one.healthy], [one for one in visits if one.healthy]
    errors = [abs(one.error_share) for one in visits if one.error_share is not None]
    return (
        all(one.class_right for one in visits)
        and all(one.rule_right for one in well)
        and sum(one.rule_right for one in sick) >= RULE_BAR * len(sick)
        and (not errors or (sum(e <= NEAR for e in errors) >= NEAR_BAR * len(errors)))
        and (not errors or statistics.median(errors) <= MEDIAN_BAR)
    )
