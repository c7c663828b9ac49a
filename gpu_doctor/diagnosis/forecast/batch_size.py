"""Forecasts another batch size from two measured sizes: step = fixed + slope * samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.prediction import BAND, Forecast, error_band
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import FEWEST_STEPS
from gpu_doctor.diagnosis.vitals.memory_fit import fit_of_runs


def batch_forecast(vitals: Vitals, size: int, others: Sequence[Vitals]) -> Forecast | None:
    """Forecasts samples/s with another batch size; None if no second size was measured.

    Args:
        vitals: vitals of the loop as it is.
        size: `batch_size` of the loader, in samples.
        others: vitals of other runs of the same loop.
    """
    b0, s0, written = vitals.samples_per_step, vitals.step_wall_s, vitals.loader.batch_size if vitals.loader else None
    if not b0 or not s0 or not written or size < 1:
        return None
    target = b0 * size / written
    known = [run for run in others if _differs_in_batch(vitals, run)]
    other = min(known, key=lambda run: abs(math.log(target / (run.samples_per_step or 1.0))), default=None)
    if other is None or not other.samples_per_step or not other.step_wall_s:
        return None
    b1, s1 = other.samples_per_step, other.step_wall_s
    slope = max((s1 - s0) / (b1 - b0), 0.0)
    step = max(s0 + slope * (target - b0), 1e-9)
    # Beyond the two sizes the line is less sure: by as much again for each doubling.
    beyond = math.log2(max(target / max(b0, b1), min(b0, b1) / target, 1.0))
    speedup, band = target / step / (b0 / s0), 1.0 + error_band(vitals) + BAND * beyond
    fit, total = fit_of_runs((vitals, other)), vitals.memory_total_bytes
    peak = None if fit is None else fit.peak_bytes(target)
    fits = "" if peak is None or not total or peak < 0.95 * total else ", which would probably not fit into the memory"
    fixed = formatting.seconds(max(s0 - slope * b0, 0.0))
    why = f"{fixed} plus {formatting.seconds(slope)} a sample, from two batch sizes{fits}"
    return Forecast(speedup, speedup / band, speedup * band, step, why, peak)


def _differs_in_batch(v: Vitals, other: Vitals) -> bool:
    """True if another run differs in its batch size only and has enough measured steps."""
    mine, theirs = ({**run.settings, "batch_size": None} for run in (v, other))
    measured = other.measured_steps >= FEWEST_STEPS and bool(other.step_wall_s and other.samples_per_step)
    return measured and mine == theirs and other.samples_per_step != v.samples_per_step
