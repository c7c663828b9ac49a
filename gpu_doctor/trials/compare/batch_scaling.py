"""Says how to scale the learning rate with the batch size.

Linear scaling: batch times k, learning rate times k, after a warm-up (Goyal et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.recording import Recording
from gpu_doctor.recording.steps import TRAINING

_SAME: Final = 0.01
"""Relative difference of samples a step below which two sides are the same: the last batch may be smaller."""


def batch_ratio(baseline: Sequence[Recording], candidate: Sequence[Recording]) -> float | None:
    """Samples a step of the candidate over the baseline's (medians); None where they are the same or not read.

    None where one trains nothing, too: there is no learning rate.
    """
    if not all((recording.steps.kind == TRAINING).any() for recording in (*baseline, *candidate)):
        return None
    before, after = (_samples_a_step(side) for side in (baseline, candidate))
    known = before > 0 and after > 0
    return after / before if known and not same_batch(before, after) else None


def same_batch(ours: float, theirs: float) -> bool:
    """True if two sides see the same number of samples a step."""
    return abs(theirs - ours) < _SAME * ours


def clause(ratio: float | None) -> str:
    """Returns the advice on the learning rate; empty for the same batch size."""
    return f"scale the learning rate with the batch (x{formatting.average(ratio)})" if ratio is not None else ""


def _samples_a_step(side: Sequence[Recording]) -> float:
    samples = np.concatenate([recording.steps.samples / recording.steps.count for recording in side])
    known = samples[np.isfinite(samples)]
    return float(np.median(known)) if len(known) else float("nan")
