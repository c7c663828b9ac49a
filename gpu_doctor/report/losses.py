"""The losses of both sides of a trial as a small picture: two lines over the samples seen."""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Column, Losses
from gpu_doctor.report.chart import Drawn, Stroke, chart
from gpu_doctor.svg import GREY

BASELINE: Final = Stroke(GREY, width=4.0, opacity=0.7)
CANDIDATE: Final = Stroke("#D55E00", dash="5 4", width=1.8)
"""Okabe and Ito's vermilion: told from grey by colour-blind eyes; 3.9 to 1 on white, 4.9 to 1 on JupyterLab's dark. The
baseline is broad, the candidate narrow and dashed on it, so that both show where they meet."""
HEIGHT: Final = 132


def loss_lines(baseline: Losses, candidate: Losses, differs_from: int | None = None) -> str:
    """The picture as SVG.

    Losses that are NaN or infinite are gaps, and a cross on the lower edge says where the first one is. '' where one
    side has fewer than two finite losses. `differs_from`: the first step, counted from 1, at which the losses differ by
    more than rounding; an upright line stands there.
    """
    if any(np.isfinite(one.value).sum() < 2 for one in (baseline, candidate)):
        return ""
    known = all(np.isfinite(one.samples).all() for one in (baseline, candidate))
    base, other = (one.samples if known else one.step for one in (baseline, candidate))
    lines = [
        Drawn(base, baseline.value, BASELINE, cross=_broken(base, baseline.value)),
        Drawn(other, candidate.value, CANDIDATE, cross=_broken(other, candidate.value)),
    ]
    marks = other[candidate.step == (differs_from or 0) - 1].tolist()
    return chart(lines, marks=marks, height=HEIGHT, fitted=True, unit="")


def _broken(x: Column, y: Column) -> float | None:
    """Where the first loss is no number."""
    bad = np.flatnonzero(~np.isfinite(y))
    return float(x[bad[0]]) if len(bad) else None
