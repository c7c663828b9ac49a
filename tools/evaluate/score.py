"""The evaluator's bars and its table: a line for each program, then the totals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from tools.evaluate.evaluator import Evaluation

CAUSE_BAR: Final = 0.95
NEAR: Final = 0.20
NEAR_BAR: Final = 0.90
MEDIAN_BAR: Final = 0.10
"""Bars: class right in all; first cause right in 95 %; predicted gain within 20 % in 90 %, median error 10 %."""
INSIDE_BAR: Final = 0.90
WIDTH_BAR: Final = 1.6
"""Bars of the predicted ends: the real gain lies between them in 90 %, the median of high over low is 1.6 at most."""
BUSY_PCT: Final = 25.0
"""The share of the cores from which other programs took part in the timing: the line says so."""

HEAD: Final = (
    f"{'program':32} {'class':14} {'first finding':30} {'cost':>5} {'1-1/g':>5} "
    f"{'pred':>5} {'real':>5} {'err':>6} {'between':>11} {'ms/step':>8} {'others':>6}  "
)


def line(found: Evaluation) -> str:
    """Returns one program in one line."""
    if found.absent:
        return f"{found.name:32} not evaluated: {found.absent}"
    if found.error:
        return f"{found.name:32} FAILED: {found.error}"
    klass = found.found_class if found.class_right else f"{found.found_class}!={found.known_class}"
    cause, cost = found.findings[0] if found.findings else ("-", None)
    share = None if found.real is None else 1.0 - 1.0 / found.real
    error = found.error_share
    ends = f"{found.band[0]:.2f}-{found.band[1]:.2f}" if found.band else ""
    figures = (
        f"{_figure(cost)} {_figure(share)} {_figure(found.predicted)} {_figure(found.real)} "
        f"{'' if error is None else f'{100 * error:+.0f} %':>6} {ends:>11} "
        f"{found.sick_ms or found.watched_ms or 0.0:8.2f} {found.others_pct:4.0f} %"
    )
    return f"{found.name:32} {klass:14} {cause:30} {figures}  {_remarks(found)}"


def _remarks(found: Evaluation) -> str:
    if not found.judged:
        return "not sick on this machine"
    remarks = []
    if not found.class_right:
        remarks.append("CLASS")
    if not found.cause_right:
        named = ", ".join(f"{cause} {100 * cost:.0f} %" for cause, cost in found.findings) or "nothing"
        right = "nothing of 10 %" if found.healthy else " or ".join(found.causes)
        remarks.append(f"CAUSE (right: {right}; found: {named})")
    remarks.extend(found.broken)
    if found.error_share is not None and abs(found.error_share) > NEAR:
        remarks.append(f"GAIN ({', '.join(f'{gain:.2f}' for gain in found.real_all)})")
    if not _inside(found):
        remarks.append("BAND")
    remarks.extend(
        f"{cause} cannot be tried" if gain is None else f"{cause} gives {gain:.2f}"
        for cause, gain in found.tried.items()
    )
    if found.trial is not None:
        remarks.append(f"a trial gave {found.trial:.2f}")
    if found.others_pct >= BUSY_PCT:
        remarks.append("busy machine")
    return "; ".join(remarks)


def _inside(found: Evaluation) -> bool:
    """Returns True if the real gain lies between the predicted ends, or none were predicted."""
    return found.band is None or found.real is None or found.band[0] <= found.real <= found.band[1]


def _figure(value: float | None) -> str:
    return f"{'':5}" if value is None else f"{value:5.2f}"


def totals(evaluations: Sequence[Evaluation]) -> str:
    """Returns the bars and what was reached, a line each."""
    judged = [found for found in evaluations if found.judged]
    absent = [found.name for found in evaluations if found.absent]
    sick, well = [found for found in judged if not found.healthy], [found for found in judged if found.healthy]
    errors = [abs(found.error_share) for found in judged if found.error_share is not None]
    near = sum(error <= NEAR for error in errors)
    failed, took = sum(bool(found.error) for found in evaluations), sum(found.seconds for found in evaluations)
    lines = [
        f"{len(evaluations)} programs, {failed} failed to run, {took:.0f} s",
        f"class right      {_of(sum(found.class_right for found in judged), len(judged))}   bar: all",
        f"first cause right {_of(sum(found.cause_right for found in sick), len(sick))}   bar: {CAUSE_BAR:.0%}",
        f"no false alarm   {_of(sum(found.cause_right for found in well), len(well))}   bar: all",
        f"gain within 20 % {_of(near, len(errors))}   bar: {NEAR_BAR:.0%}",
    ]
    if errors:
        lines.append(f"median error     {100 * statistics.median(errors):.0f} %   bar: {100 * MEDIAN_BAR:.0f} %")
    lines += _of_forecasts(judged)
    if absent:
        lines.append(f"not evaluated, for this machine cannot be given their limits: {', '.join(absent)}")
    not_sick = [found.name for found in evaluations if not (found.judged or found.error or found.absent)]
    if not_sick:
        lines.append(f"not judged, for they are not sick on this machine: {', '.join(not_sick)}")
    busy = sum(found.others_pct >= BUSY_PCT for found in judged if found.real is not None)
    if busy:
        lines.append(f"{busy} gains were timed while other programs used {BUSY_PCT:.0f} % of the cores or more: these")
        lines.append(
            "figures, and what was predicted from such a run, are of a busy machine; run again on a quiet one."
        )
    return "\n".join(lines)


def _of_forecasts(evaluations: Sequence[Evaluation]) -> list[str]:
    """Returns how well the predicted ends did, and how near the forecasts came to trials."""
    bands = [found.band for found in evaluations if found.band is not None]
    lines = []
    if bands:
        inside = sum(_inside(found) for found in evaluations if found.band is not None)
        lines.append(f"gain inside band {_of(inside, len(bands))}   bar: {INSIDE_BAR:.0%}")
        width = statistics.median(high / max(low, 1e-9) for low, high in bands)
        lines.append(f"median high/low  {width:.2f}   bar: {WIDTH_BAR:g}")
    trials = [abs(found.trial_error_share) for found in evaluations if found.trial_error_share is not None]
    if trials:
        near = _of(sum(error <= NEAR for error in trials), len(trials))
        lines.append(f"of trials 20 %   {near}   bar: {NEAR_BAR:.0%}")
    return lines


def _of(count: int, whole: int) -> str:
    return f"{count} of {whole} ({100 * count / whole:.0f} %)" if whole else "none"


def passed(evaluations: Sequence[Evaluation]) -> bool:
    """Returns True if every bar is reached."""
    if any(found.error for found in evaluations):
        return False
    judged = [found for found in evaluations if found.judged]
    sick, well = [found for found in judged if not found.healthy], [found for found in judged if found.healthy]
    errors = [abs(found.error_share) for found in judged if found.error_share is not None]
    return (
        all(found.class_right for found in judged)
        and all(found.cause_right for found in well)
        and sum(found.cause_right for found in sick) >= CAUSE_BAR * len(sick)
        and (not errors or (sum(error <= NEAR for error in errors) >= NEAR_BAR * len(errors)))
        and (not errors or statistics.median(errors) <= MEDIAN_BAR)
    )
