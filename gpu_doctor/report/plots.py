"""The three plots of the static result, drawn from a recording: utilization, memory, loader latency with step time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.diagnosis import warmup_rows
from gpu_doctor.elements import MUTED, section
from gpu_doctor.formatting import clean
from gpu_doctor.recording import Column, Recording, Series, Steps
from gpu_doctor.report.chart import Line, chart, line_swatch, usual_stroke
from gpu_doctor.svg import METRIC_COLOURS, PHASE_COLOURS, as_image

GIB: Final = float(2**30)
MOST_LINES: Final = 6
"""Lines a plot shows; a machine with eight GPUs has more, the first are drawn and the rest counted."""
CUT_ABOVE: Final = 3.0
"""Single steps slower than this many times the 98th percentile (worker start, compile) are cut off at the top."""


def plots(recording: Recording) -> str:
    """Three plots side by side, each with a legend whose figures say the same in text; '' for a run without any."""
    marks = _epochs(recording)
    drawn = (_utilization(recording, marks), _memory(recording, marks), _latency(recording, marks))
    return section("".join(drawn), ";display:flex;flex-wrap:wrap")


def _utilization(recording: Recording, marks: Sequence[float]) -> str:
    found = [one for one in recording.series if one.metric.group == "utilization" and len(one.values)]
    lines = _lines(found)
    figures = [f"mean {formatting.percent(_mean(line.y))}" for line in lines]
    of = "" if any(one.metric.name == "gpu_util_pct" for one in found) else "CPU "  # as in the live view
    return _plot(f"{of}utilization %", lines, figures, marks, top=100.0, remark=_more(found))


def _memory(recording: Recording, marks: Sequence[float]) -> str:
    # A memory that nothing was ever in (no workers, say) gets no line, as in the live view.
    found = [one for one in recording.series if one.metric.group == "memory" and (one.values > 0).any()]
    lines = _lines(found, 1.0 / GIB)
    figures = [f"peak {formatting.size(_most(line.y) * GIB)}" for line in lines]
    return _plot("memory GiB", lines, figures, marks, remark=_more(found))


def _latency(recording: Recording, marks: Sequence[float]) -> str:
    steps = recording.steps
    if not np.isfinite(steps.wall_s).any():
        return ""
    at: Column = steps.start_s + steps.wall_s
    step_s, wait_s = steps.per_batch(steps.training_s), steps.per_batch(steps.data_wait_s)
    lines = [Line("step", at, step_s * 1e3, usual_stroke(0, PHASE_COLOURS["backward"]))]
    # From the first to the last measured step, as every share in the report.
    warm = steps.rows(warmup_rows(steps))
    figures = [f"mean {formatting.seconds(_mean_per_batch(warm, warm.training_s))}"]
    if np.nansum(wait_s) > 0:  # a loop without a loader waits for none: that is no line at zero
        lines.append(Line("wait for a batch", at, wait_s * 1e3, usual_stroke(1, PHASE_COLOURS["data_wait"])))
        figures.append(f"mean {formatting.seconds(_mean_per_batch(warm, warm.data_wait_s))}")
    hidden = next((one for one in recording.fetches if one.workers > 0 and one.batches), None)
    if hidden is not None:
        fetch_s = hidden.wall_s / hidden.batches
        level = np.full(2, fetch_s * 1e3)
        stroke = usual_stroke(len(lines), PHASE_COLOURS["evaluation"])
        lines.append(Line("fetch in a worker (hidden behind steps)", at[[0, -1]], level, stroke))
        figures.append(f"mean {formatting.seconds(fetch_s)}")
    shown = [float(np.nanquantile(line.y, 0.98)) for line in lines if np.isfinite(line.y).any()]
    highest = max(_most(line.y) for line in lines)
    usual = max(shown, default=0.0)
    top = CUT_ABOVE / 2 * usual if highest > CUT_ABOVE * usual > 0 else None
    cut = f"highest: {formatting.seconds(highest / 1e3)}, cut off" if top is not None else ""
    return _plot("loader latency, ms per batch", lines, figures, marks, top=top, remark=cut)


def _plot(
    title: str,
    lines: Sequence[Line],
    figures: Sequence[str],
    marks: Sequence[float],
    *,
    top: float | None = None,
    remark: str = "",
) -> str:
    if not lines:
        return ""
    said = ", ".join(f"{line.label} {figure}" for line, figure in zip(lines, figures, strict=True))
    picture = as_image(chart(lines, marks=marks, top=top), f"{title}: {said}", 340)
    legend = "".join(
        f'<div style="padding-left:26px;text-indent:-26px">'
        f"{as_image(line_swatch(line.stroke), '')} "
        f"{escape(line.label)} <b style='white-space:nowrap'>{figure}</b></div>"
        for line, figure in zip(lines, figures, strict=True)
    )
    more = f'<div style="{MUTED}">{escape(remark)}</div>' if remark else ""
    style = "flex:1 1 230px;max-width:340px;margin:0 12px 6px 0;font-size:12px"
    return f'<div style="{style}"><div>{escape(title)}</div>{picture}{legend}{more}</div>'


def _more(found: Sequence[Series]) -> str:
    return f"and {len(found) - MOST_LINES} more, not drawn" if len(found) > MOST_LINES else ""


def _lines(found: Sequence[Series], scale: float = 1.0) -> list[Line]:
    """Of the readings that are drawn, times `scale`."""
    strokes = [usual_stroke(i, _colour(one, found)) for i, one in enumerate(found[:MOST_LINES])]
    named = zip(found, strokes, strict=False)
    return [Line(_label(one, found), one.times_s, one.values * scale, stroke) for one, stroke in named]


def _label(one: Series, among: Sequence[Series]) -> str:
    several = len({other.metric.device for other in among if other.metric.device is not None}) > 1
    where = f" [{one.metric.device}]" if several and one.metric.device is not None else ""
    return clean(one.metric.label, 60) + where


def _colour(one: Series, among: Sequence[Series]) -> str:
    """That of the live view where there is one GPU at most; of several, each line has the next one."""
    several = len({other.metric.device for other in among} - {None}) > 1
    return "" if several else METRIC_COLOURS.get(one.metric.name, "")


def _mean(values: Column) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _mean_per_batch(steps: Steps, seconds: Column) -> float:
    """A row that stands for several steps counts as many times."""
    known = np.isfinite(seconds)
    return float(seconds[known].sum() / steps.batches_or_steps[known].sum()) if known.any() else float("nan")


def _most(values: Column) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else float("nan")


def _epochs(recording: Recording) -> list[float]:
    """Where a new epoch begins, seconds after the run began."""
    steps = recording.steps
    return [float(steps.start_s[i + 1]) for i in np.flatnonzero(np.diff(steps.epoch) > 0)]
