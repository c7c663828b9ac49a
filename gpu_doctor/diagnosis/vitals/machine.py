"""Vitals of the machine while the loop ran: mean use of its cores and of the training GPU, and peak memory."""

from __future__ import annotations

import numpy as np

from gpu_doctor.recording import Column, Recording, Series, Steps

OF_A_GPU = ("gpu_util_pct", "tensor_active_pct")
"""Metrics that are read for each GPU; the others are of the whole machine."""


def machine(recording: Recording, rest: Steps) -> dict[str, float | None]:
    """Computes mean utilisation over the measured steps, and peak memory over the whole run.

    Args:
        recording: recording of a run or a trial.
        rest: its training steps after the warm-up.

    Returns:
        Fields of `Vitals` with their values; None for a value that was not read.
    """
    device, setup = recording.setup.gpu_index, recording.setup

    def mean(name: str) -> float | None:
        return _mean(recording.one_series(name, device if name in OF_A_GPU else None), rest)

    peak = recording.peak_bytes if np.isfinite(recording.peak_bytes) else None
    total = None if setup.card is None else setup.card.memory_bytes
    return {
        "gpu_util_pct": mean("gpu_util_pct"),
        "tensor_active_pct": mean("tensor_active_pct"),
        "cpu_util_pct": mean("cpu_util_pct"),
        "peak_bytes": peak,
        "memory_total_bytes": float(total) if total else None,
        "peak_share": peak / total if peak is not None and total else None,
    }


def _mean(series: Series | None, rest: Steps) -> float | None:
    """Returns the mean of the readings taken during the steps, not of what the cell does afterwards (plots, waits).

    A reading covers the time since the reading before it. It counts if most of that time lies before the last step's
    end.
    """
    if series is None or not len(series.values):
        return None
    begin_s, end_s = (float(rest.start_s[0]), rest.end_s) if len(rest) else (0.0, np.inf)
    since = np.concatenate(([begin_s], series.times_s[:-1])).clip(min=begin_s)
    values: Column = series.values[(series.times_s >= begin_s) & ((since + series.times_s) / 2 <= end_s)]
    return float(np.nanmean(values)) if len(values) and not np.isnan(values).all() else None
