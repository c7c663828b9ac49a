"""Draws the losses of both sides of a trial as a small chart: two lines over the samples seen."""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Losses
from gpu_doctor.report.chart import Drawn, Stroke, chart
from gpu_doctor.svg import GREY

BASELINE: Final = Stroke(GREY, width=4.0, opacity=0.7)
CANDIDATE: Final = Stroke("#D55E00", dash="5 4", width=1.8)
"""Okabe and Ito's vermilion, which colour-blind readers can tell from grey; its contrast is 3.9 to 1 on white and 4.9
to 1 on JupyterLab's dark theme. The baseline is broad and the candidate narrow and dashed on top of it, so that both
stay visible where they coincide."""
HEIGHT: Final = 132


def loss_lines(baseline: Losses, candidate: Losses, differs_from: int | None = None) -> str:
    """Draws the losses as SVG; '' if a side has fewer than two finite losses.

    NaN and infinite losses are gaps; a cross on the lower edge marks the first of them.

    Args:
        baseline: losses of the baseline.
        candidate: losses of the candidate.
        differs_from: first step, counted from 1, whose losses differ by more than rounding; a vertical line marks it.
    """
    if any(np.isfinite(losses.value).sum() < 2 for losses in (baseline, candidate)):
        return ""
    known = all(np.isfinite(losses.samples).all() for losses in (baseline, candidate))
    base, other = (losses.samples if known else losses.step for losses in (baseline, candidate))
    lines = [
        Drawn(base, baseline.value, BASELINE, cross=_broken(base, baseline.value)),
        Drawn(other, candidate.value, CANDIDATE, cross=_broken(other, candidate.value)),
    ]
    marks = other[candidate.step == (differs_from or 0) - 1].tolist()
    return chart(lines, marks=marks, height=HEIGHT, fitted=True, unit="")


def _broken(x: Column, y: Column) -> float | None:
    """Returns the x position of the first loss that is NaN or infinite, or None if all are finite."""
    bad = np.flatnonzero(~np.isfinite(y))
    return float(x[bad[0]]) if len(bad) else None
